package curvetest_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/curve"
	"github.com/outbid-dev/outbid/orchestrator/lab/curvetest"
)

func tables(t *testing.T, lines ...string) ([]curvetest.Task, error) {
	t.Helper()
	var text bytes.Buffer
	z := gzip.NewWriter(&text)
	if _, err := io.WriteString(z, strings.Join(lines, "\n")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return curvetest.Tables(&text)
}

func TestTables(t *testing.T) {
	t.Parallel()
	tasks, err := tables(t,
		`{"task": "row-01", "parameters": ["rate"], "rows": [[0.5]], "val_accuracy": [[10, 20]]}`,
		`{"set": "Trained", "task": "digits", "mode": "min", "parameters": ["rate", "units"],
		  "rows": [[0.1, 8], [9, 16]], "values": [[2.5, 1.5, 1], [1e30, null, null]]}`,
		`{"set": "Trained", "task": "names", "mode": "max", "parameters": ["rate"], "rows": [[1]], "values": [[0.25]]}`)
	if err != nil {
		t.Fatal(err)
	}
	if len(tasks) != 3 {
		t.Fatalf("%d tasks, want 3", len(tasks))
	}
	for i, want := range []struct {
		set, name string
		maximise  bool
		steps     int
	}{{"LCBench", "row-01", true, 2}, {"Trained", "digits", false, 3}, {"Trained", "names", true, 1}} {
		task := &tasks[i]
		if task.Set != want.set || task.Name != want.name || task.Maximise != want.maximise || task.Steps() != want.steps {
			t.Errorf("task %d is %s's %s, maximise %v, of %d steps; want %+v", i, task.Set, task.Name, task.Maximise, task.Steps(), want)
		}
	}
	digits := &tasks[1]
	if got, want := digits.Points(0, 3), []curve.Point{{Step: 1, Value: 2.5}, {Step: 2, Value: 1.5}, {Step: 3, Value: 1}}; !slices.Equal(got, want) {
		t.Errorf("points %v, want %v", got, want)
	}
	if v := digits.Curves[1]; v[0] != 1e30 || !math.IsNaN(v[1]) || digits.Known(1, 3) || !digits.Known(1, 1) || !digits.Fresh[1][2] {
		t.Errorf("a training that diverged reads %v, fresh %v", v, digits.Fresh[1])
	}
	if !slices.Equal(digits.Parameters, []string{"rate", "units"}) || !slices.Equal(digits.Rows[1], []float64{9, 16}) || len(digits.Kinds) != 2 {
		t.Errorf("configurations read %v, %v, of kinds %q", digits.Parameters, digits.Rows, digits.Kinds)
	}
}

func TestTablesThatAreWrong(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"set": "Trained", "task": "digits", "rows": [[1]], "values": [[1]]}`:                            `task "digits": mode: must be "min" or "max", got ""`,
		`{"set": "Trained", "task": "digits", "mode": "min", "rows": [[1], [2]], "values": [[1]]}`:        `task "digits": has 1 curves for 2 rows`,
		`{"set": "Trained", "task": "digits", "mode": "min", "rows": [[1], [2]], "values": [[1, 2], []]}`: `task "digits": has curves of 2 and of 0 steps`,
		`{"task": "row-01", "rows": []}`: `task "row-01": has 0 curves for 0 rows`,
	} {
		if _, err := tables(t, line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", line, err, want)
		}
	}
}
