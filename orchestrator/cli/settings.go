package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outbid-dev/outbid/orchestrator/server"
	"github.com/outbid-dev/outbid/orchestrator/settings"
)

// configFlag names the configuration file of a command.
const configFlag = "config"

// configurable lets a command's flags be set by the environment and by a configuration file.
func (cl *client) configurable(cmd *cobra.Command) *cobra.Command {
	name := cmd.Name()
	cmd.Flags().String(configFlag, "", "YAML `FILE` with settings: in section "+name+", by the names of these flags; a flag "+
		"overrides a variable such as OUTBID_"+strings.ToUpper(name)+"_NAME, and that the file")
	_ = cmd.MarkFlagFilename(configFlag)
	inner := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var err error
		if cl.applied, err = cl.applySettings(cmd, cl.configFile(cmd)); err != nil {
			return badInput("%w", err)
		}
		return inner(cmd, args)
	}
	return cmd
}

// configurables are the commands with settings.
func configurables() []string { return []string{"serve", "worker"} }

// settingsOf returns a command's flags as settings: its own, and the global flags that it uses.
func settingsOf(cmd *cobra.Command) settings.Command {
	used := strings.Fields(cmd.Annotations[globalFlags])
	inherited := cmd.InheritedFlags()
	return settings.Command{Name: cmd.Name(), Flags: cmd.Flags(), Takes: func(f *pflag.Flag) bool {
		if f.Name == configFlag || f.Name == "help" || isOldName(f) {
			return false
		}
		return inherited.Lookup(f.Name) == nil || slices.Contains(used, f.Name)
	}}
}

// configFile returns the path of a command's configuration file, or "".
func (cl *client) configFile(cmd *cobra.Command) string {
	if path := cmd.Flags().Lookup(configFlag).Value.String(); path != "" {
		return path
	}
	return cl.getenv(settingsOf(cmd).Variable(configFlag))
}

// applySettings sets a command's flags from a file, if path is not empty, and the environment.
func (cl *client) applySettings(cmd *cobra.Command, path string) (_ []settings.Setting, err error) {
	var file *settings.File
	if path != "" {
		if file, err = settings.ReadFile(path, configurables()...); err != nil {
			return nil, err
		}
	}
	return settingsOf(cmd).Apply(file, cl.getenv)
}

// settingsOfNew returns the settings that a new command gets from a file and the environment.
func (cl *client) settingsOfNew(cmd *cobra.Command, path string) ([]settings.Setting, error) {
	root := &cobra.Command{}
	cl.opts.addTo(root)
	root.AddCommand(cmd)
	return cl.applySettings(cmd, path)
}

// changedSettings returns the names of settings that a restart would change.
func (cl *client) changedSettings(next []settings.Setting) []string {
	var names []string
	for i, s := range cl.applied {
		if s.Source != "flag" && i < len(next) && next[i].Value != s.Value {
			names = append(names, s.Name)
		}
	}
	return names
}

// reloads returns a channel for server.Config.Reload, which gets a value for each SIGHUP. With each it logs the
// settings that have changed, which only a restart applies. fresh returns the settings of a new process.
func (cl *client) reloads(ctx context.Context, fresh func() ([]settings.Setting, error), log *slog.Logger) <-chan struct{} {
	signals, reload := make(chan os.Signal, 1), make(chan struct{}, 1)
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
			}
			next, err := fresh()
			if err != nil {
				log.Warn("the configuration is not valid; the previous one stays in use", "err", oneLine(err.Error()))
			} else if changed := cl.changedSettings(next); len(changed) > 0 {
				log.Warn("these settings have changed and need a restart", "settings", strings.Join(changed, " "))
			}
			select {
			case reload <- struct{}{}:
			default: // a reload is pending
			}
		}
	}()
	return reload
}

// configCommands check and show configurations.
type configCommands struct {
	*client
	// checks are the checks of the commands with settings, by name. They run after the flags are set.
	checks map[string]func() error
}

func (cf *configCommands) command() *cobra.Command {
	return groupCommand(&cobra.Command{
		Use:   "config",
		Short: "Check and show the configuration of servers and workers",
		Long: `Config checks and shows the settings of 'outbid serve' and 'outbid worker'. Each flag is a setting, which comes from, in
this order: the flag, the variable OUTBID_SERVE_NAME or OUTBID_WORKER_NAME (in capitals, with _ for -), the file of
--config or OUTBID_SERVE_CONFIG or OUTBID_WORKER_CONFIG, the default.`,
		Example:     "  outbid config check outbid.yaml",
		Annotations: map[string]string{globalFlags: ""},
	}, cf.checkCommand(), cf.showCommand())
}

func (cf *configCommands) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file",
		Long: `Check prints each error of a configuration file with its line, setting, value, and what would be right. It also reads
the files that the settings name. It exits with 1 if there is an error. Variables and the server are not used.`,
		Example: "  outbid config check outbid.yaml",
		Args:    exactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := settings.ReadFile(args[0], configurables()...)
			for _, name := range configurables() {
				err = errors.Join(err, cf.check(cmd, name, file))
			}
			if err != nil {
				cf.printf("%s\n", strings.TrimSpace(err.Error()))
				return exitSilently(exitFailed)
			}
			cf.printf("%s is valid\n", args[0])
			return nil
		},
	}
}

// check applies a command's section of a file to its flags and checks them.
func (cf *configCommands) check(cmd *cobra.Command, name string, file *settings.File) error {
	if !file.Has(name) {
		return nil
	}
	found, _, err := cmd.Root().Find([]string{name})
	if err != nil {
		return err
	}
	if _, err := settingsOf(found).Apply(file, func(string) string { return "" }); err != nil {
		return err
	}
	err = cf.checks[name]()
	if field, ok := errors.AsType[*server.FieldError](err); ok {
		return errors.New(file.Line(name, strings.TrimPrefix(flagOf(field.Field), "--")) + ": " + field.Named(name+"."+strings.TrimPrefix(flagOf(field.Field), "--")))
	}
	return err
}

func (cf *configCommands) showCommand() *cobra.Command {
	var out format
	var path string
	cmd := &cobra.Command{
		Use:   "show COMMAND [-- FLAG...]",
		Short: "Show the settings of a server or a worker, and where each comes from",
		Long: `Show prints the settings with which 'outbid serve' or 'outbid worker' would start here with this environment, and where
each comes from. Flags of the command follow --. Passwords in URLs are not shown.`,
		Example: `  outbid config show serve --config outbid.yaml
  outbid config show worker`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || !slices.Contains(configurables(), args[0]) {
				return errors.New("COMMAND: must be " + strings.Join(configurables(), " or "))
			}
			return nil
		},
		ValidArgs: configurables(),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, _, err := cmd.Root().Find(args[:1])
			if err != nil {
				return err
			}
			flags := args[1:]
			if path != "" {
				flags = append([]string{"--" + configFlag, path}, flags...)
			}
			if err := found.ParseFlags(flags); err != nil {
				return badInput("%w", err)
			}
			all, err := cf.applySettings(found, cf.configFile(found))
			if err != nil {
				return badInput("%w", err)
			}
			return cf.printSettings(out, all)
		},
	}
	outputFlag(cmd, &out)
	cmd.Flags().StringVar(&path, configFlag, "", "YAML `FILE` of the command")
	_ = cmd.MarkFlagFilename(configFlag)
	return cmd
}

func (cf *configCommands) printSettings(out format, all []settings.Setting) error {
	l := newLister(cf.stdout, out, []string{"SETTING", "VALUE", "SOURCE"}, func(s settings.Setting) []string {
		source := s.Source
		if s.Where != "" {
			source = s.Where
		}
		return []string{s.Name, orDash(clean(s.Value)), clean(source)}
	})
	l.table.width = cf.columns()
	for _, s := range all {
		if err := l.add(s); err != nil {
			return err
		}
	}
	return l.close("no settings")
}
