package study_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/lab/study"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
)

// shared is the path of the real traces, which may be missing.
const shared = "../../../../shared/data/traces"

const small = `
first_seed: 3
last_seed: 4
tables:
  - name: few apps
    cluster: gpu:8/4
    made: themis-2
    options: [apps=3, days=1, few-jobs=2, median-jobs=4, max-jobs=8, task-hours=0.2]
    rows: [{policy: fifo}, {policy: tiresias, options: [threshold=60]}, {policy: las}]
  - name: lies
    lies: true
    cluster: gpu:8/4
    made: themis-1
    options: [apps=3, days=1, few-jobs=2, median-jobs=4, max-jobs=8, task-hours=0.2]
    rows: [{policy: themis}, {policy: themis, options: [liars=1, lie=0.3]}]
`

func read(t *testing.T, text string) *study.Study {
	t.Helper()
	s, err := study.Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run makes the missing runs of a study, and returns the lines of their results.
func run(t *testing.T, s *study.Study, got study.Results, engine experiment.Engine) (string, error) {
	t.Helper()
	var out bytes.Buffer
	lines := json.NewEncoder(&out)
	err := s.Run(t.Context(), engine, shared, got, func(l *study.Line) error { return lines.Encode(l) })
	return out.String(), err
}

func nobody(uint64, string, float64) bool { return false }
func all(uint64, string, float64) bool    { return true }

// A study that is interrupted, even within a line, continues from there, and has the same lines and tables as one that
// was not.
func TestAStudyThatIsBrokenOffGoesOn(t *testing.T) {
	t.Parallel()
	s := read(t, small)
	whole := study.Results{}
	text, err := run(t, s, whole, experiment.Simulate)
	if err != nil {
		t.Fatal(err)
	}
	if missing, all := s.Missing(whole); missing != 0 || all != 10 {
		t.Fatalf("%d of %d runs are missing", missing, all)
	}
	lines := strings.SplitAfter(text, "\n")
	part, err := study.ReadResults(strings.NewReader(strings.Join(lines[:4], "") + lines[4][:40]))
	if err != nil {
		t.Fatal(err)
	}
	if missing, _ := s.Missing(part); missing != 6 {
		t.Fatalf("%d runs are missing of a file that holds four and a part", missing)
	}
	if missing := s.Markdown(study.Results{}, nobody); !strings.Contains(missing, "| `las` | not run |") {
		t.Errorf("the tables of nothing:\n%s", missing)
	}
	rest, err := run(t, s, part, experiment.Simulate)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Join(lines[4:], ""), rest); diff != "" {
		t.Errorf("other lines than at once (-once +in two parts):\n%s", diff)
	}
	if diff := cmp.Diff(s.Markdown(whole, all), s.Markdown(part, all)); diff != "" {
		t.Errorf("other tables than at once:\n%s", diff)
	}
}

// A table may have its own columns, rows whose jobs mix types, and forks; ratios are relative to the first row.
func TestTablesOfForks(t *testing.T) {
	t.Parallel()
	s := read(t, `
first_seed: 0
last_seed: 0
tables:
  - name: forks
    cluster: hadare-aws
    made: hadare
    options: [mix=M-1, vary=true]
    forks: {upload: 3s, average: 3s, each: 1s}
    rows: [{policy: hadar}, {policy: hadare, options: [round=90s]}, {policy: hadare, options: [round=90s], mixed: true}]
    columns: [{head: "total, min", figure: makespan_s, over: 60, ratio: true}, {head: utilisation, figure: utilization}]
`)
	got := study.Results{}
	text, err := run(t, s, got, experiment.Simulate)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "forks 3s, 3s and 1s each") || strings.Contains(text, `"alone_slowdown_max":1`) {
		t.Errorf("the lines are\n%s", text)
	}
	table := s.Markdown(got, nobody)
	rows := strings.Split(table, "\n")
	if !strings.Contains(table, "| policy | total, min | over the first | utilisation |") || len(rows) < 7 {
		t.Fatalf("the table is\n%s", table)
	}
	if !strings.Contains(rows[4], "| 1.00 | 0.20 |") || !strings.Contains(rows[6], "`hadare round=90s, mixed`") {
		t.Errorf("the table is\n%s", table)
	}
	var alone, forked float64
	for _, l := range got {
		if l.Row == "hadar" {
			alone = l.Figures["makespan_s"]
		} else if l.Row == "hadare round=90s" {
			forked = l.Figures["makespan_s"]
		}
	}
	if forked <= 0 || forked > .8*alone {
		t.Errorf("one job takes %g s on the fastest node, and %g s on five", alone, forked)
	}
}

// Runs of changed tables are repeated.
func TestRunsOfOtherSettingsDoNotCount(t *testing.T) {
	t.Parallel()
	engine := func(_ context.Context, _ experiment.Request) (measure.Result, error) {
		return measure.Result{RhoMax: 2}, nil
	}
	s, got := read(t, small), study.Results{}
	if _, err := run(t, s, got, engine); err != nil {
		t.Fatal(err)
	}
	if missing, all := read(t, strings.ReplaceAll(small, "apps=3", "apps=4")).Missing(got); missing != all {
		t.Errorf("%d of %d are missing with other apps", missing, all)
	}
	if !strings.Contains(s.Markdown(got, nobody), "| `las` | 2.00 ± 0.00 | 1.00 ± 0.00 |") {
		t.Errorf("the tables are\n%s", s.Markdown(got, nobody))
	}
}

// The mean of 1 to 10 is 5.5, its standard error .957, and t with 9 degrees of freedom 2.262.
func TestIntervals(t *testing.T) {
	t.Parallel()
	var values []float64
	for i := range 10 {
		values = append(values, float64(i+1))
	}
	if got := study.Of(values); got.Mean != 5.5 || math.Abs(got.Half-2.166) > 5e-4 || got.String() != "5.50 ± 2.17" {
		t.Errorf("%+v", got)
	}
	if got := study.Of([]float64{123.4}).String(); got != "123" {
		t.Errorf("of one value: %s", got)
	}
}

func TestBrokenStudies(t *testing.T) {
	t.Parallel()
	for want, text := range map[string]string{
		"want first_seed, last_seed and tables": "",
		"field seeds not found":                 "seeds: 3",
		"row fifo is listed twice":              strings.ReplaceAll(small, "{policy: las}", "{policy: fifo}"),
		`there is no figure "speed"`:            strings.ReplaceAll(small, "lies: true", "columns: [{figure: speed}]"),
		"seeds is -1: want 1 or more":           strings.ReplaceAll(small, "name: lies", "name: lies\n    seeds: -1"),
		"want a unique name":                    strings.ReplaceAll(small, "name: lies", "name: few apps"),
	} {
		if _, err := study.Read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// The studies of the documentation can be run: every policy, option, cluster and workload in them exists.
func TestTheDocumentedStudiesCanBeRun(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../docs/research/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	engine := func(_ context.Context, r experiment.Request) (measure.Result, error) {
		_, err := r.Policy.New()
		return measure.Result{}, err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s := read(t, string(data))
		s.Last = s.First
		made := map[string]bool{}
		for i := range s.Tables { // a workload that was made already is not made again
			table := &s.Tables[i]
			if key := fmt.Sprint(table.Made, table.Options, table.Trace); made[key] {
				table.Made, table.Options, table.Trace = "themis-1", []string{"apps=2", "days=1", "few-jobs=2", "median-jobs=2", "max-jobs=2"}, ""
			} else {
				made[key] = true
			}
		}
		if _, err := os.Stat(shared); err != nil { // the tables of real jobs cannot be made
			s.Tables = slices.DeleteFunc(s.Tables, func(t study.Table) bool { return t.Trace != "" || t.Throughputs != "" })
		}
		if _, err := run(t, s, study.Results{}, engine); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
