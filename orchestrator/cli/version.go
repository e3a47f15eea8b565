package cli

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
)

// versionView is the output of `version -o json`.
type versionView struct {
	Version  string `json:"version" doc:"version of this binary"`
	Revision string `json:"revision" doc:"commit it was built from; empty if unknown"`
	Go       string `json:"go" doc:"version of Go that built it"`
	Platform string `json:"platform" doc:"operating system and architecture"`
}

// programCommands describe this program: its version, its commands, and how a shell completes them.
type programCommands struct {
	*console
	version string
}

func (p *programCommands) versionCommand() *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:         "version",
		Short:       "Print the version of this binary",
		Long:        "Version prints the version of this binary. 'outbid doctor' compares it with those of the server and the workers.",
		Annotations: map[string]string{globalFlags: ""},
		Example: `  outbid version
  outbid version -o json`,
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			v := p.versionInfo()
			if out != formatTable {
				return p.printObject(out, v)
			}
			p.printf("%s", p.versionLine())
			return nil
		},
	}
	outputFlag(cmd, &out)
	return cmd
}

// versionLine is the output of `version` and `--version`.
func (p *programCommands) versionLine() string {
	v := p.versionInfo()
	return fmt.Sprintf("outbid %s %s %s\n", p.version, v.Go, v.Platform)
}

// versionInfo returns this binary's version.
func (p *programCommands) versionInfo() versionView {
	_, revision, _ := strings.Cut(p.version, "+")
	return versionView{Version: release(p.version), Revision: revision, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
}

// release returns a version without its build metadata.
func release(version string) string {
	v, _, _ := strings.Cut(version, "+")
	return v
}

// pythonVersion returns a release as PEP 440 writes it: 1.0.0rc1 for 1.0.0-rc.1.
func pythonVersion(version string) string {
	return strings.NewReplacer("-rc.", "rc", "-b.", "b", "-a.", "a").Replace(release(version))
}

func (p *programCommands) completionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a script that completes commands and names in the shell",
		Long: `Completion prints a script for bash, zsh, fish or powershell. With it the shell completes commands, flags, and
the names of the server's sweeps and trials.`,
		Annotations: map[string]string{globalFlags: ""},
		Example: `  source <(outbid completion bash)
  outbid completion zsh > "${fpath[1]}/_outbid"
  outbid completion fish > ~/.config/fish/completions/outbid.fish`,
		Args:      exactArgs("SHELL"),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(p.stdout, true)
			case "zsh":
				return root.GenZshCompletion(p.stdout)
			case "fish":
				return root.GenFishCompletion(p.stdout, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(p.stdout)
			default:
				return badInput("shell %q: want bash, zsh, fish or powershell", args[0])
			}
		},
	}
	return cmd
}
