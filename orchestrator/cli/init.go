package cli

import (
	_ "embed"
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
)

// exampleSweep is the file that `outbid init` writes. It runs unchanged wherever there is a shell.
//
//go:embed example.yaml
var exampleSweep []byte

func (sw *sweepCommands) initCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "init [FILE.yaml]",
		Short: "Write an example sweep to start from",
		Long: `Init writes an example sweep file, by default sweep.yaml. It runs unchanged: it tunes a small shell script.
Comments explain every field.`,
		Annotations: map[string]string{globalFlags: ""},
		Example: `  outbid init
  outbid init my.yaml && outbid run my.yaml`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeYAML,
		RunE: func(_ *cobra.Command, args []string) error {
			file := "sweep.yaml"
			if len(args) == 1 {
				file = args[0]
			}
			flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
			if force {
				flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
			}
			f, err := os.OpenFile(file, flags, 0o644)
			if errors.Is(err, fs.ErrExist) {
				return badInput("%s is already there: name another file, or give --force", file)
			}
			if err != nil {
				return badInput("%w", err)
			}
			_, err = f.Write(exampleSweep)
			if err := errors.Join(err, f.Close()); err != nil {
				return err
			}
			sw.printf("wrote %s\npreview it with 'outbid preview %s', start a server with 'outbid up', and run it with "+
				"'outbid run %s'\n", file, file, file)
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace an existing file")
	return cmd
}
