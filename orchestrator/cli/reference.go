package cli

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
)

func (p *programCommands) docsCommand() *cobra.Command {
	return &cobra.Command{
		Use:         "docs FILE.md",
		Short:       "Write the reference of the command line",
		Long:        "Docs writes docs/reference/cli.md: every command with its flags, and the fields of the JSON output.",
		Annotations: map[string]string{globalFlags: ""},
		Example:     "  outbid docs docs/reference/cli.md",
		Args:        exactArgs("FILE.md"),
		Hidden:      true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeWhole(args[0], func(w io.Writer) error {
				_, err := io.WriteString(w, reference(cmd.Root()))
				return err
			})
		},
	}
}

// CommandReference returns the documentation of some commands of an edition as Markdown.
func CommandReference(e Edition, names ...string) string {
	root := newApp(&console{}, nil, "", osInterrupts, e).rootCommand()
	var b strings.Builder
	for _, cmd := range root.Commands() {
		if slices.Contains(names, cmd.Name()) {
			writeCommand(&b, cmd)
		}
	}
	return b.String()
}

// reference returns the documentation of the whole command line as Markdown.
func reference(root *cobra.Command) string {
	// Cobra adds the help command when a command runs; add it now so that the result is always the same.
	root.InitDefaultHelpCmd()
	var b strings.Builder
	b.WriteString(`# The command line

This file is written by ` + "`outbid docs docs/reference/cli.md`" + `; a test fails when it is stale.

` + root.Long + "\n\n" + `## For every command

Commands accept a sweep's id (` + "`digits-1`" + `), or its name (` + "`digits`" + `) for the newest sweep with that name. A trial is
` + "`digits-1/17`" + `, or ` + "`digits-1/best`" + ` for the best one. With ` + "`outbid completion`" + ` the shell completes these names.

A command uses the server of ` + "`--server`" + `, or else of ` + "`OUTBID_URL`" + `, or else that of the directory ` + "`./.outbid`" + `. If no server was ever
started from that directory, it uses that of ` + "`~/.outbid`" + `, or else ` + "`" + defaultServer + "`" + `. If the directory's server is down, the command
fails instead of using another server.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | something failed, or the followed sweep did |
| 2 | bad usage or bad input |
| 3 | the followed sweep was stopped |
| 4 | no server answers |
| 130 | interrupted; the sweep continues |

`)
	b.WriteString("Every command accepts these flags. Its `--help` shows those that it uses.\n\n")
	writeFlags(&b, root.PersistentFlags())
	for _, group := range root.Groups() {
		fmt.Fprintf(&b, "## %s\n\n", strings.TrimSuffix(group.Title, ":"))
		for _, cmd := range root.Commands() {
			if cmd.GroupID == group.ID && !cmd.Hidden {
				writeCommand(&b, cmd)
			}
		}
	}
	b.WriteString(`## JSON

` + "`-o json`" + ` prints one object, or for listings one array; ` + "`-o jsonl`" + ` prints one object per line. The fields
below are stable: later versions only add fields. NaN and infinities are the strings
` + "`\"NaN\"`, `\"Infinity\"` and `\"-Infinity\"`" + `. Times are RFC 3339 in UTC. Absent values are null.

`)
	for _, v := range []struct {
		title string
		of    any
	}{
		{"Prices (`prices`)", pricesView{}},
		{"Usage (`usage`)", usageView{}},
		{"What you may do (`auth can-i`)", accessView{}},
		{"An expired sweep (`retention run`)", expiredView{}},
		{"A sweep (`ls`, `show SWEEP`, `submit`, `pause`, `resume`, `stop`, `extend`)", sweepView{}},
		{"A trial (`ls SWEEP`, `show SWEEP/TRIAL`, `best`)", trialView{}},
		{"A line of `run` and `watch`", updateView{}},
		{"A node (`nodes`)", nodeView{}},
		{"A round (`auction`)", roundView{}},
		{"An explanation (`explain`)", explanationView{}},
		{"A line of a log (`logs`)", logView{}},
		{"A preview (`preview`)", previewView{}},
		{"A check (`doctor`)", checkView{}},
		{"A line of `sim`; docs/reference/figures.md has the definitions", measure.Result{}},
		{"A version (`version`)", versionView{}},
	} {
		writeFields(&b, v.title, reflect.TypeOf(v.of))
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func writeCommand(b *strings.Builder, cmd *cobra.Command) {
	fmt.Fprintf(b, "### %s\n\n%s\n\n", cmd.CommandPath(), cmd.Short+".")
	if !cmd.HasSubCommands() {
		use := cmd.UseLine()
		fmt.Fprintf(b, "```text\n%s\n```\n\n", use)
	}
	fmt.Fprintf(b, "%s\n\n```sh\n%s\n```\n\n", cmd.Long, unindent(cmd.Example))
	writeFlags(b, cmd.LocalNonPersistentFlags())
	for _, sub := range cmd.Commands() {
		writeCommand(b, sub)
	}
}

func unindent(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}

// writeFlags writes flags as a table, if there are any except --help.
func writeFlags(b *strings.Builder, flags *pflag.FlagSet) {
	var rows []string
	kinds := map[string]string{
		"int": "N", "int32": "N", "float": "X", "string": "TEXT", "strings": "TEXT", "stringArray": "TEXT",
		"duration": "DURATION",
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		if kind, ok := kinds[value]; ok {
			value = kind
		}
		name := "`--" + strings.TrimSpace(f.Name+" "+value) + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		switch f.DefValue {
		case "", "0", "false", "[]", "0s":
		default:
			usage += " (default `" + f.DefValue + "`)"
		}
		rows = append(rows, fmt.Sprintf("| %s | %s |\n", name, strings.ReplaceAll(usage, "|", `\|`)))
	})
	if len(rows) > 0 {
		b.WriteString("| flag | meaning |\n|---|---|\n" + strings.Join(rows, "") + "\n")
	}
}

// writeFields writes the fields of a struct from its tags.
func writeFields(b *strings.Builder, title string, t reflect.Type) {
	fmt.Fprintf(b, "### %s\n\n| field | meaning |\n|---|---|\n", title)
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", name, f.Tag.Get("doc"))
	}
	b.WriteString("\n")
}
