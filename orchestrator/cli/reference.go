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

// CommandReference returns the documentation of some commands of an edition as Markdown. A command that the product has
// too is documented only as far as the edition extends it.
func CommandReference(e Edition, names ...string) string {
	root := newApp(&console{}, nil, "", osInterrupts, e).rootCommand()
	product := newApp(&console{}, nil, "", osInterrupts, Product()).rootCommand()
	var w referenceWriter
	for _, cmd := range root.Commands() {
		if !slices.Contains(names, cmd.Name()) {
			continue
		}
		base, _, err := product.Find([]string{cmd.Name()})
		if err != nil {
			w.writeCommand(cmd)
			continue
		}
		fmt.Fprintf(&w, "### %s\n\n[%s](cli.md#%s) with additions. %s\n\n```sh\n%s\n```\n\n", cmd.CommandPath(), base.CommandPath(),
			anchor(base), strings.TrimSpace(e.Sim().Help), unindent(cmd.Example))
		known := flagRows(base)
		w.writeFlags(slices.DeleteFunc(flagRows(cmd), func(r flagRow) bool { return slices.Contains(known, r) }))
	}
	return w.String()
}

// anchor returns the fragment of a command's heading.
func anchor(cmd *cobra.Command) string {
	return strings.ReplaceAll(cmd.CommandPath(), " ", "-")
}

// reference returns the documentation of the whole command line as Markdown.
func reference(root *cobra.Command) string {
	// Cobra adds the help command when a command runs; add it now so that the result is always the same.
	root.InitDefaultHelpCmd()
	var b referenceWriter
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
	b.writeFlags(rowsOf(root.PersistentFlags()))
	for _, group := range root.Groups() {
		fmt.Fprintf(&b, "## %s\n\n", strings.TrimSuffix(group.Title, ":"))
		for _, cmd := range root.Commands() {
			if cmd.GroupID == group.ID && !cmd.Hidden {
				b.writeCommand(cmd)
			}
		}
	}
	b.WriteString(`## JSON

` + "`-o table`" + `, the default, prints text. ` + "`-o json`" + ` prints one object, or for listings one array; ` + "`-o jsonl`" + ` prints one object per line. The fields
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
		{"A version (`version`)", versionView{}},
	} {
		b.writeFields(v.title, reflect.TypeOf(v.of))
	}
	fmt.Fprintf(&b, "### A line of `sim`\n\n[Figures](figures.md) defines the fields: `%s`.\n", strings.Join(fieldNames(reflect.TypeFor[measure.Result]()), "`, `"))
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// leastShared is the number of equal flags from which a command refers to an earlier one instead of repeating them.
const leastShared = 5

// referenceWriter writes the documentation of commands.
type referenceWriter struct {
	strings.Builder
	written []writtenCommand
}

// writtenCommand is a command whose flags are in the reference.
type writtenCommand struct {
	*cobra.Command
	rows []flagRow
}

// flagRow is a row of a table of flags.
type flagRow struct{ name, meaning string }

func (w *referenceWriter) writeCommand(cmd *cobra.Command) {
	fmt.Fprintf(w, "### %s\n\n%s\n\n", cmd.CommandPath(), cmd.Short+".")
	if !cmd.HasSubCommands() {
		use := cmd.UseLine()
		fmt.Fprintf(w, "```text\n%s\n```\n\n", use)
	}
	fmt.Fprintf(w, "%s\n\n```sh\n%s\n```\n\n", cmd.Long, unindent(cmd.Example))
	rows := flagRows(cmd)
	own, shared, with := w.split(rows)
	w.writeFlags(own)
	if len(shared) > 0 {
		fmt.Fprintf(w, "It also accepts these flags of [%s](#%s): %s.\n\n", with.CommandPath(), anchor(with.Command), strings.Join(shared, ", "))
	}
	w.written = append(w.written, writtenCommand{cmd, rows})
	for _, sub := range cmd.Commands() {
		w.writeCommand(sub)
	}
}

// split returns a command's own flags, and the names of those that it shares with the written command that shares most.
func (w *referenceWriter) split(rows []flagRow) (own []flagRow, shared []string, with writtenCommand) {
	own = rows
	for _, c := range w.written {
		var names []string
		others := make([]flagRow, 0, len(rows))
		for _, r := range rows {
			if slices.Contains(c.rows, r) {
				names = append(names, r.name)
			} else {
				others = append(others, r)
			}
		}
		if len(names) >= leastShared && len(names) > len(shared) {
			own, shared, with = others, names, c
		}
	}
	return own, shared, with
}

func unindent(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}

// flagRows returns the flags of a command alone.
func flagRows(cmd *cobra.Command) []flagRow {
	return rowsOf(cmd.LocalNonPersistentFlags())
}

// rowsOf returns the rows for flags except --help.
func rowsOf(flags *pflag.FlagSet) []flagRow {
	var rows []flagRow
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
		if f.Usage == outputUsage {
			usage = "see [JSON](#json)"
		}
		rows = append(rows, flagRow{name, strings.ReplaceAll(usage, "|", `\|`)})
	})
	return rows
}

// writeFlags writes flags as a table, if there are any.
func (w *referenceWriter) writeFlags(rows []flagRow) {
	if len(rows) == 0 {
		return
	}
	w.WriteString("| flag | meaning |\n|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(w, "| %s | %s |\n", r.name, r.meaning)
	}
	w.WriteString("\n")
}

// fieldNames returns the names of a struct's fields in JSON.
func fieldNames(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// writeFields writes the fields of a struct from its tags.
func (w *referenceWriter) writeFields(title string, t reflect.Type) {
	fmt.Fprintf(w, "### %s\n\n| field | meaning |\n|---|---|\n", title)
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		fmt.Fprintf(w, "| `%s` | %s |\n", name, f.Tag.Get("doc"))
	}
	w.WriteString("\n")
}
