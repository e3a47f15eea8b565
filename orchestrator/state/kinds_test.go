package state

import (
	"fmt"
	"os"
	"strings"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// printKinds returns the table of events as docs/reference/events.md prints it.
func printKinds() string {
	var out strings.Builder
	out.WriteString("| event | about | moves | the sweep's tuner | the policy | its view changes | the sweep | workers | readers |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, k := range Kinds() {
		policy, sweep, workers := string(k.Policy), "", ""
		if k.Asks {
			policy = "is asked"
		}
		if k.Advances {
			sweep = "is checked"
		}
		if k.Orders {
			workers = "get orders"
		}
		var moves []string
		for _, c := range k.lifecycles {
			moves = append(moves, c.what)
		}
		readers := string(k.Readers)
		if k.Outlook {
			readers = strings.TrimPrefix(readers+"; another outlook", "; ")
		}
		row := fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", k.Name, k.About, strings.Join(moves, ", "), k.Tuner, policy,
			k.View, sweep, workers, readers)
		for strings.Contains(row, "|  |") {
			row = strings.ReplaceAll(row, "|  |", "| |")
		}
		out.WriteString(row)
	}
	return out.String()
}

func TestTheDocsPrintTheEvents(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/reference/events.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := printKinds(); !strings.Contains(string(text), "\n"+want+"\n") {
		t.Errorf("docs/reference/events.md does not print this table as it is in kinds.go:\n%s", want)
	}
}

// Every event must have a row in the table.
func TestEveryEventHasARow(t *testing.T) {
	t.Parallel()
	st := New()
	rows := map[string]int{}
	for _, k := range Kinds() {
		rows[k.Name]++
	}
	empty := (&outbidv1.Event{}).ProtoReflect()
	fields := empty.Descriptor().Oneofs().ByName("kind").Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		name := string(field.Message().Name())
		if rows[name] != 1 {
			t.Errorf("%s has %d rows in the table of events", name, rows[name])
			continue
		}
		delete(rows, name)
		e := &outbidv1.Event{}
		e.ProtoReflect().Set(field, empty.NewField(field))
		k := st.Kind(e)
		if k == nil || k.Name != name {
			t.Errorf("an event that holds %s is found as %v", name, k)
			continue
		}
		if k.Advances && k.sweep == nil && k.Tuner != TunerStarts {
			t.Errorf("%s: a sweep is looked at, and the event names none that must exist", name)
		}
		if k.Orders && k.trial == nil {
			t.Errorf("%s: workers of a lease get orders, and the event names no trial", name)
		}
	}
	for name := range rows {
		t.Errorf("the table has a row for %s, which is no event", name)
	}
}
