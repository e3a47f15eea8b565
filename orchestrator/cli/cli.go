// Package cli is Outbid's command line: the commands that users and scripts call to run sweeps, servers and workers. It
// parses flags, calls servers and prints the answers. Package server implements servers and workers.
//
// Each command is built by a function and depends only on Main's arguments, so tests run the whole command line in
// their own process.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Main runs the command line of an edition with args (without the program's name) and returns the exit code: 0 for success, 1 for a
// failure, 2 for bad usage or input, 3 if a followed sweep was stopped, 4 if no server answers, 130 if interrupted.
// getenv looks up an environment variable. version is the version of this build.
func Main(ctx context.Context, edition Edition, args []string, stdin io.Reader, stdout, stderr io.Writer,
	getenv func(string) string, version string,
) int {
	con := &console{
		stdin: stdin, stdout: stdout, stderr: stderr, term: openTerminal(stdin, stdout, stderr, getenv), now: time.Now,
	}
	a := newApp(con, getenv, version, osInterrupts, edition)
	a.browse = openBrowser
	return a.run(ctx, args)
}

// app is one run of the command line. It builds the commands, gives them what they share, and runs one of them.
type app struct {
	*process
	// browse opens a URL in this machine's browser.
	browse  func(ctx context.Context, link string) error
	edition Edition
	// started is set when a command's own code starts. An error before that is bad usage.
	started bool
}

func newApp(c *console, getenv func(string) string, version string, i interrupts, e Edition) *app {
	return &app{
		process: &process{client: &client{console: c, getenv: getenv}, version: version, interrupts: i},
		edition: e,
	}
}

// run builds the commands, runs the one named by args, and converts its error to a message and an exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.rootCommand()
	root.SetArgs(args)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if !a.started {
		err = usageError(root, cmd, args, err)
	}
	code, line := exitMessage(err)
	if line != "" {
		_, _ = io.WriteString(a.stderr, a.edition.Name+": "+line+"\n")
	}
	return code
}

// rootCommand returns `outbid` with all commands.
func (a *app) rootCommand() *cobra.Command {
	program := &programCommands{console: a.console, version: a.version}
	root := &cobra.Command{
		Use:   a.edition.Name,
		Short: "Tune hyperparameters on shared GPUs",
		Long: `Outbid tunes hyperparameters on shared, mixed GPU clusters.

Start everything on this machine with "outbid up", then submit a sweep with "outbid run sweep.yaml".`,
		Example: `  outbid init
  outbid up
  outbid run sweep.yaml`,
		Version:                    a.version,
		SilenceUsage:               true,
		SilenceErrors:              true,
		SuggestionsMinimumDistance: 2,
		CompletionOptions:          cobra.CompletionOptions{HiddenDefaultCmd: true, DisableDefaultCmd: true},
	}
	root.SetVersionTemplate(program.versionLine())
	root.InitDefaultVersionFlag()
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetHelpCommand(helpCommand(root))
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		hideUnusedFlags(cmd)
		help(cmd, args)
	})
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", fmt.Sprintf(".FlagUsagesWrapped %d ", helpColumns)))
	a.opts.addTo(root)
	root.AddGroup(
		&cobra.Group{ID: groupEveryday, Title: "Everyday:"},
		&cobra.Group{ID: groupSweeps, Title: "Sweeps:"},
		&cobra.Group{ID: groupResults, Title: "Results:"},
		&cobra.Group{ID: groupServer, Title: "Servers and workers:"},
		&cobra.Group{ID: groupSimulation, Title: "Simulation:"},
		&cobra.Group{ID: groupOther, Title: "Other:"},
	)
	a.addCommands(root, program)
	a.markStarted(root)
	return root
}

// addCommands adds the commands to the root command.
func (a *app) addCommands(root *cobra.Command, program *programCommands) {
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	dashboard := &dashboardCommand{client: a.client, browse: a.browse}
	sweeps := &sweepCommands{client: a.client, interrupts: a.interrupts}
	queries := &queryCommands{a.client}
	results := &resultCommands{a.client}
	rounds := &roundCommands{a.client}
	people := &signInCommands{client: a.client, browse: a.browse}
	servers := &serverCommands{process: a.process, edition: a.edition}
	workers := &workerCommands{process: a.process}
	cluster := &clusterCommands{client: a.client, version: a.version}
	keys := &keyCommands{a.console}
	tenants := &tenantCommands{a.client}
	assistants := &mcpCommand{a.process}
	audits := &auditCommands{a.client}
	retained := &retentionCommands{a.client}
	permissions := &accessCommands{a.client}
	tokens := &apiTokenCommands{a.client}
	explains := &explainCommand{client: a.client, edition: a.edition}
	sims := &simCommands{client: a.client, edition: a.edition}
	add(groupEveryday, sweeps.initCommand(), servers.upCommand(), sweeps.previewCommand(), sweeps.runCommand(), queries.lsCommand(),
		sweeps.watchCommand(), queries.showCommand(), explains.command(), queries.bestCommand(), queries.logsCommand(), sweeps.stopCommand(), dashboard.uiCommand())
	add(groupSweeps, sweeps.submitCommand(), sweeps.pauseCommand(), sweeps.resumeCommand(), sweeps.retryCommand(), sweeps.extendCommand(), sweeps.annotateCommand(), sweeps.deleteCommand())
	add(groupResults, results.averageCommand(), results.soupCommand(), results.exportCommand(), rounds.auctionCommand(), explains.whatIfCommand(), explains.simulationCommand(), rounds.pricesCommand())
	serve, worker := servers.serveCommand(), workers.workerCommand()
	configs := &configCommands{a.client, map[string]func() error{"serve": servers.checkServe, "worker": workers.checkWorker}}
	backups := &backupCommands{a.client, a.version}
	add(groupServer, serve, worker, configs.command(), backups.command(), cluster.nodesCommand(), cluster.doctorCommand(),
		keys.tokenCommand(tokens.commands()...), keys.tlsCommand(), keys.natsCommand(), tenants.tenantCommand(), tenants.secretCommand(),
		tenants.usageCommand(), retained.retentionCommand(), audits.auditCommand())
	add(groupOther, people.loginCommand(), people.logoutCommand(), people.whoamiCommand(), permissions.authCommand())
	add(groupSimulation, sims.simCommand(), sims.replayCommand())
	if a.edition.Commands != nil {
		more := a.edition.Commands()
		for _, cmd := range more {
			cmd.Annotations = map[string]string{globalFlags: ""} // they cannot read them
		}
		add(groupSimulation, more...)
	}
	add(groupOther, assistants.command(), program.versionCommand(), program.completionCommand(), program.docsCommand())
}

// groupCommand returns a command that only has subcommands.
func groupCommand(cmd *cobra.Command, inner ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(inner...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return badInput("unknown command %q (see '%s --help')", strings.Join(args, " "), cmd.CommandPath())
		}
		return cmd.Help()
	}
	return cmd
}

// helpColumns is the width of the list of flags in help texts.
const helpColumns = 100

const (
	groupEveryday   = "everyday"
	groupSweeps     = "sweeps"
	groupResults    = "results"
	groupServer     = "server"
	groupSimulation = "simulation"
	groupOther      = "other"
)

// markStarted wraps every command so that it sets started, and so that Ctrl-C ends commands that do not handle it
// themselves.
func (a *app) markStarted(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		a.markStarted(c)
	}
	inner := cmd.RunE
	if inner == nil {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a.started = true
		if cmd.Annotations[ownInterrupts] != "" {
			return inner(cmd, args)
		}
		ctx, stop := a.interrupts.until(cmd.Context())
		defer stop()
		cmd.SetContext(ctx)
		err := inner(cmd, args)
		if err != nil && errors.Is(context.Cause(ctx), errInterrupted) {
			return errInterrupted
		}
		return err
	}
}

// ownInterrupts annotates the commands that handle Ctrl-C themselves.
const ownInterrupts = "interrupts"

// helpCommand returns cobra's help command with an example.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:         "help [COMMAND]",
		Short:       "Show help for a command",
		Long:        "Help shows what a command does, its flags and examples.",
		Example:     "  outbid help run",
		GroupID:     groupOther,
		Annotations: map[string]string{globalFlags: ""},
		ValidArgsFunction: func(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, c := range root.Commands() {
				if len(args) == 0 && strings.HasPrefix(c.Name(), prefix) {
					names = append(names, c.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			found, _, err := root.Find(args)
			if err != nil {
				return badInput("there is no command %q: run 'outbid help' for the list", strings.Join(args, " "))
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}
