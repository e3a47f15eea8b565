package cli

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/server"
)

// globalOptions are the flags of every command.
type globalOptions struct {
	server, token, tokenFile, ca string
	logLevel, logFormat          string
}

// defaultServer is where `outbid up` listens unless told otherwise.
const defaultServer = "http://127.0.0.1:7700"

// defaultData is where `outbid up` and `outbid serve` keep their data unless told otherwise.
const defaultData = ".outbid"

func (a *app) globalFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&a.opts.server, "server", "", "`URL` of the server (environment: OUTBID_URL; default: the server running "+
		"from ./.outbid or ~/.outbid, else "+defaultServer+")")
	f.StringVar(&a.opts.token, "token", "", "`TOKEN` for the server (environment: OUTBID_TOKEN)")
	f.StringVar(&a.opts.tokenFile, "token-file", "", "`FILE` that holds the token")
	f.StringVar(&a.opts.ca, "ca", "", "PEM `FILE` of the authority that signed the server's certificate (environment: "+
		"OUTBID_CA_FILE)")
	f.StringVar(&a.opts.logLevel, "log-level", "info", "least `LEVEL` that is logged: debug, info, warn or error")
	f.StringVar(&a.opts.logFormat, "log-format", "auto", "`FORMAT` of the log: auto, text or json")
	_ = root.MarkPersistentFlagFilename("token-file")
	_ = root.MarkPersistentFlagFilename("ca")
	complete(root, "log-level", "debug", "info", "warn", "error")
	complete(root, "log-format", "auto", "text", "json")
}

// complete makes the shell offer fixed values for a flag.
func complete(cmd *cobra.Command, flag string, values ...string) {
	// It fails only for a flag that does not exist, which the tests would show.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// target is the server that commands talk to, and how that was decided.
type target struct {
	url, from string
	token     string
	// data is the directory of a server that was found by it and ends with its last client.
	data string
}

// findServer decides which server is meant: the flag, the environment, one that runs from ./.outbid or ~/.outbid, or
// the default address.
func (a *app) findServer() (target, error) {
	token, err := a.findToken()
	if err != nil {
		return target{}, err
	}
	if a.opts.server != "" {
		return target{url: a.opts.server, from: "--server", token: token}, nil
	}
	if url := a.getenv("OUTBID_URL"); url != "" {
		return target{url: url, from: "OUTBID_URL", token: token}, nil
	}
	for _, dir := range a.dataDirs() {
		f, ok, err := server.ReadFile(dir)
		if err == nil && ok && f.API != "" {
			t := target{url: f.API, from: server.FilePath(dir), token: token}
			if f.WhileClients {
				t.data = dir
			}
			return t, nil
		}
	}
	return target{url: defaultServer, from: "the default", token: token}, nil
}

// dataDirs are where a server of this machine is looked for.
func (a *app) dataDirs() []string {
	dirs := []string{defaultData}
	if home := a.getenv("HOME"); home != "" {
		dirs = append(dirs, filepath.Join(home, defaultData))
	}
	return dirs
}

// caFile is the authority that the API's certificate is checked with; "" for those that the system trusts. The
// environment says nothing of NATS, which may well be in the clear beside an API with a certificate.
func (a *app) caFile() string {
	if a.opts.ca != "" {
		return a.opts.ca
	}
	return a.getenv("OUTBID_CA_FILE")
}

// findToken takes the token from the flags or the environment; "" if there is none.
func (a *app) findToken() (string, error) {
	if a.opts.token != "" {
		return a.opts.token, nil
	}
	if a.opts.tokenFile != "" {
		data, err := os.ReadFile(a.opts.tokenFile)
		if err != nil {
			return "", badInput("--token-file: %w", err)
		}
		token := strings.TrimSpace(string(data))
		if token == "" {
			return "", badInput("--token-file %s is empty", a.opts.tokenFile)
		}
		if len(strings.Fields(token)) > 1 {
			return "", badInput("--token-file %s: want one token alone, as 'outbid token new' prints it; a line of a tokens "+
				"file holds a name, a tenant and a role too", a.opts.tokenFile)
		}
		return token, nil
	}
	return a.getenv("OUTBID_TOKEN"), nil
}
