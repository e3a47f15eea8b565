package cli

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outbid-dev/outbid/orchestrator/server"
	"github.com/outbid-dev/outbid/orchestrator/settings"
)

// globalOptions has the flags of every command.
type globalOptions struct {
	server, token, tokenFile, ca string
	logLevel, logFormat          string
}

// defaultServer is the default address of `outbid up`.
const defaultServer = "http://127.0.0.1:7700"

// defaultData is the default data directory of `outbid up` and `outbid serve`.
const defaultData = ".outbid"

// addTo adds the flags to the root command.
func (o *globalOptions) addTo(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&o.server, "server", "", "`URL` of the server (environment: OUTBID_URL; default: the server of "+
		"./.outbid or ~/.outbid, else "+defaultServer+")")
	f.StringVar(&o.token, "token", "", "`TOKEN` for the server (environment: OUTBID_TOKEN)")
	f.StringVar(&o.tokenFile, "token-file", "", "`FILE` with the token")
	f.StringVar(&o.ca, "ca", "", "PEM `FILE` of the authority that signed the server's certificate (environment: "+
		"OUTBID_CA_FILE)")
	f.StringVar(&o.logLevel, "log-level", "info", "lowest `LEVEL` to log: debug, info, warn or error")
	f.StringVar(&o.logFormat, "log-format", "auto", "`FORMAT` of the log: auto, text or json")
	_ = root.MarkPersistentFlagFilename("token-file")
	_ = root.MarkPersistentFlagFilename("ca")
	complete(root, "log-level", "debug", "info", "warn", "error")
	complete(root, "log-format", "auto", "text", "json")
}

// globalFlags annotates a command with the names of the global flags that it uses, if those are not globalServer. It also
// applies to the command's subcommands.
const globalFlags = "global-flags"

// The global flags by their purpose.
const (
	globalServer = "server token token-file ca"
	globalLog    = "log-level log-format"
)

// rareFlag marks flags that help does not list, because few users need them. The reference has them.
const rareFlag = "rare"

// oldName marks flags that are the deprecated names of others.
const oldName = "old name"

// markRare leaves flags out of the command's help.
func markRare(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		_ = cmd.Flags().SetAnnotation(name, rareFlag, nil) // it fails only for an unknown flag, which the tests would find
	}
}

// oldFlag is the value of a flag by its deprecated name.
type oldFlag struct {
	pflag.Value
	flag *pflag.Flag
	warn func()
}

// Set sets the flag.
func (o oldFlag) Set(text string) error {
	o.warn()
	o.flag.Changed = true
	return o.flag.Value.Set(text) //nolint:wrapcheck // pflag adds the names
}

// renamedFlag lets a flag be given by its deprecated name, which help leaves out, with a warning.
func (c *console) renamedFlag(f *pflag.FlagSet, old, name string) {
	flag := f.Lookup(name)
	warn := sync.OnceFunc(func() { c.notef("warning: --%s is deprecated; write --%s", old, name) })
	f.AddFlag(&pflag.Flag{
		Name: old, Usage: flag.Usage, DefValue: flag.DefValue, Hidden: true, Value: oldFlag{flag.Value, flag, warn},
		Annotations: map[string][]string{oldName: nil},
	})
}

// isOldName reports whether a flag is the deprecated name of another.
func isOldName(f *pflag.Flag) bool {
	_, is := f.Annotations[oldName]
	return is
}

// hideUnusedFlags hides the global flags that a command does not use, and its rare ones. It still accepts them, so that a
// script may give the same flags to every command.
func hideUnusedFlags(cmd *cobra.Command) {
	used := globalServer
	for c := cmd; c != nil; c = c.Parent() {
		if names, ok := c.Annotations[globalFlags]; ok {
			used = names
			break
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, rare := f.Annotations[rareFlag]; rare {
			f.Hidden = true
		}
	})
	root := cmd.Root()
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		f.Hidden = cmd != root && !slices.Contains(strings.Fields(used), f.Name)
	})
}

// complete makes the shell offer fixed values for a flag.
func complete(cmd *cobra.Command, flag string, values ...string) {
	// It fails only for an unknown flag, which the tests would find.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// target is the server that commands use, and how it was chosen.
type target struct {
	url, from string
	token     string
	// signIn is the file with the person's sign-in to this server, or "" without one or with a token.
	signIn string
	// data is the directory through which the server was found, or "".
	data string
	// passing is set if the server stops with its last client.
	passing bool
}

// where names the server for the user: its URL, and its directory if it was found through that.
func (t target) where() string {
	if t.data == "" {
		return "the server at " + t.url
	}
	return fmt.Sprintf("the server of %s (%s)", absolute(t.data), t.url)
}

// absolute returns the absolute path, or the path itself on an error.
func absolute(path string) string {
	if whole, err := filepath.Abs(path); err == nil {
		return whole
	}
	return path
}

// client has the global flags. It finds the servers and ledgers that they name, and connects to servers.
type client struct {
	*console
	getenv func(string) string
	opts   globalOptions
	// applied are the settings of the running command, if it is configurable.
	applied []settings.Setting
}

// logger returns the logger that the global flags select.
func (cl *client) logger() (*slog.Logger, error) {
	return newLogger(cl.stderr, cl.opts.logLevel, cl.opts.logFormat, cl.term)
}

// findServer chooses the server: from the flag, the environment, the directory ./.outbid or ~/.outbid, or the default
// address. If the directory's server is not running, findServer returns an error instead of another server than the
// folder names.
func (cl *client) findServer() (target, error) {
	token, err := cl.findToken()
	if err != nil {
		return target{}, err
	}
	t, err := cl.findAddress(token)
	if err == nil && token == "" {
		t.signIn = cl.savedSignIn(t.url)
	}
	return t, err
}

// findAddress chooses the server for findServer.
func (cl *client) findAddress(token string) (target, error) {
	if cl.opts.server != "" {
		return target{url: cl.opts.server, from: "--server", token: token}, nil
	}
	if url := cl.getenv("OUTBID_URL"); url != "" {
		return target{url: url, from: "OUTBID_URL", token: token}, nil
	}
	dir := cl.dataDir()
	if dir == "" {
		return target{url: defaultServer, from: "the default", token: token}, nil
	}
	f, err := runningServer(dir)
	if err != nil {
		return target{}, err
	}
	return target{url: f.API, from: server.FilePath(dir), token: token, data: dir, passing: f.WhileClients}, nil
}

// dataDir returns the default data directory: ./.outbid, or else ~/.outbid, if a server was ever started from it;
// otherwise "".
func (cl *client) dataDir() string {
	if server.HasServer(defaultData) {
		return defaultData
	}
	if home := cl.getenv("HOME"); home != "" {
		if dir := filepath.Join(home, defaultData); server.HasServer(dir) {
			return dir
		}
	}
	return ""
}

// runningServer returns the address file of a directory's server, or an error that tells how to start it.
func runningServer(dir string) (server.File, error) {
	f, running, err := server.ReadFile(dir)
	if err != nil {
		return f, &exitError{code: exitUnreachable, msg: fmt.Sprintf("cannot tell where the server of %s is: %v; name a server with "+
			"--server URL", absolute(dir), trimOp(err))}
	}
	if running && f.API != "" {
		return f, nil
	}
	start := "outbid up"
	if dir != defaultData {
		start += " --data " + dir
	}
	return f, &exitError{code: exitUnreachable, msg: fmt.Sprintf("the server of %s is not running: start it with '%s', or name another "+
		"with --server URL", absolute(dir), start)}
}

// caFile returns the authority for the API's certificate, or "" for the system's authorities. The environment variable
// does not apply to NATS, which may be unencrypted although the API has a certificate.
func (cl *client) caFile() string {
	if cl.opts.ca != "" {
		return cl.opts.ca
	}
	return cl.getenv("OUTBID_CA_FILE")
}

// findToken returns the token from the flags or the environment, or "".
func (cl *client) findToken() (string, error) {
	if cl.opts.token != "" {
		return cl.opts.token, nil
	}
	if cl.opts.tokenFile != "" {
		data, err := os.ReadFile(cl.opts.tokenFile)
		if err != nil {
			return "", badInput("--token-file: %w", err)
		}
		token := strings.TrimSpace(string(data))
		if token == "" {
			return "", badInput("--token-file %s is empty", cl.opts.tokenFile)
		}
		if len(strings.Fields(token)) > 1 {
			return "", badInput("--token-file %s: want only a token, as 'outbid token new' prints it; a line of a tokens "+
				"file also has a name, a tenant and a role", cl.opts.tokenFile)
		}
		return token, nil
	}
	return cl.getenv("OUTBID_TOKEN"), nil
}
