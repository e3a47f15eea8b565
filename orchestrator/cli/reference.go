package cli

import (
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
)

func (a *app) docsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "docs FILE.md",
		Short:   "Write the reference of the command line",
		Long:    "Docs writes what docs/reference/cli.md holds: every command with its flags, and what the JSON of listings means.",
		Example: "  outbid docs docs/reference/cli.md",
		Args:    exactly("FILE.md"),
		Hidden:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeWhole(args[0], func(w io.Writer) error {
				_, err := io.WriteString(w, reference(cmd.Root()))
				return err
			})
		},
	}
}

// reference is the whole command line as Markdown.
func reference(root *cobra.Command) string {
	// Cobra adds it when a command runs; the reference is the same before and after.
	root.InitDefaultHelpCmd()
	var b strings.Builder
	b.WriteString(`# The command line

This file is written by ` + "`outbid docs docs/reference/cli.md`" + `; a test fails when it is stale.

` + root.Long + "\n\n" + `## For every command

A sweep is named by its id (` + "`digits-1`" + `), or by its name (` + "`digits`" + `), which means the newest sweep of
that name. A trial is ` + "`digits-1/17`" + `, or ` + "`digits-1/best`" + ` for the best one. With
` + "`outbid completion`" + ` the shell completes all of these.

A command acts on the server that ` + "`--server`" + ` names, or else ` + "`OUTBID_URL`" + `, or else on that of ` + "`./.outbid`" + `. Where no server was ever
started from the folder it is that of ` + "`~/.outbid`" + `, or else ` + "`" + defaultServer + "`" + `. If the directory's server is down, the command
says so and uses no other.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | something failed, or the followed sweep did |
| 2 | bad usage or bad input |
| 3 | the followed sweep was stopped |
| 4 | no server answers |
| 130 | interrupted; the sweep goes on |

`)
	b.WriteString("Flags of every command:\n\n")
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

` + "`-o json`" + ` prints one object, or for listings one array; ` + "`-o jsonl`" + ` prints one object a line. The fields
below are stable: later versions only add some. Numbers are numbers, except that NaN and infinities are the strings
` + "`\"NaN\"`, `\"Infinity\"` and `\"-Infinity\"`" + `. Times are RFC 3339 in UTC. Absent values are null.

`)
	for _, v := range []struct {
		title string
		of    any
	}{
		{"Prices (`prices`)", pricesView{}},
		{"A sweep (`ls`, `show SWEEP`, `submit`, `pause`, `resume`, `stop`, `extend`)", sweepView{}},
		{"A trial (`ls SWEEP`, `show SWEEP/TRIAL`, `best`)", trialView{}},
		{"A line of `run` and `watch`", updateView{}},
		{"A node (`nodes`)", nodeView{}},
		{"A round (`auction`)", roundView{}},
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

// writeFlags writes flags as a table, if there are any but --help.
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
