// Package curvetest reads real learning curves for tests: TaskSet (Metz et al. 2020), the logs of AlgoPerf's runs, and
// the tables that lcbench.py and trained.py write, one JSON object a line.
package curvetest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/curve"
)

// A Task holds curves of one training task, over the same steps.
type Task struct {
	Set, Name string
	Maximise  bool
	// Curves[i][s] is the metric of configuration i at step s+1, or NaN if it diverged or was not measured.
	Curves [][]float64
	// Fresh[i][s] is set if the metric was measured at that step, not carried forward.
	Fresh [][]bool
	// Parameters are the names of the parameters, in order, and Rows their values. Configurations of one Kind belong to
	// the same algorithm; Kinds are "" if there is only one.
	Parameters []string
	Rows       [][]float64
	Kinds      []string
}

// Steps returns the number of steps of each curve.
func (t *Task) Steps() int { return len(t.Curves[0]) }

// Points returns the points of a curve that were measured up to a step.
func (t *Task) Points(i, step int) []curve.Point {
	var points []curve.Point
	for s, v := range t.Curves[i][:step] {
		if t.Fresh[i][s] {
			points = append(points, curve.Point{Step: int64(s + 1), Value: v})
		}
	}
	return points
}

// Known reports whether a curve has a finite value at a step.
func (t *Task) Known(i, step int) bool {
	v := t.Curves[i][step-1]
	return !math.IsNaN(v) && !math.IsInf(v, 0)
}

// All reads all available tasks of TaskSet and AlgoPerf, possibly none.
func All(shared fs.FS) ([]Task, error) {
	tasks, err := taskSet(shared)
	if err != nil {
		return nil, fmt.Errorf("read TaskSet's curves: %w", err)
	}
	more, err := algoPerf(shared, "external_tuning", leastRuns)
	if err != nil {
		return nil, fmt.Errorf("read AlgoPerf's curves: %w", err)
	}
	return append(tasks, more...), nil
}

// SelfTuned reads AlgoPerf's runs of self-tuning submissions, ten or twenty for each workload, or none if they are not
// available. Rows that differ only by their seed have the same configuration.
func SelfTuned(shared fs.FS) ([]Task, error) {
	tasks, err := algoPerf(shared, "self_tuning", 1)
	if err != nil {
		return nil, fmt.Errorf("read AlgoPerf's curves: %w", err)
	}
	for i := range tasks {
		tasks[i].Set = "SelfTuned"
	}
	return tasks, nil
}

func taskSet(shared fs.FS) ([]Task, error) {
	files, err := fs.Glob(shared, "taskset/*.json.gz")
	if err != nil {
		return nil, err
	}
	var tasks []Task
	for _, name := range files {
		text, err := unzip(shared, name)
		if err != nil {
			return nil, err
		}
		var rows []struct {
			HP    map[string]float64
			Valid struct{ Loss []number }
		}
		if err := json.Unmarshal(strict(text), &rows); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		short := strings.TrimSuffix(path.Base(name), ".json.gz")
		t := Task{Set: "TaskSet", Name: strings.TrimPrefix(short, "FixedTextRNNClassification_imdb_")}
		for _, r := range rows {
			values, fresh := make([]float64, len(r.Valid.Loss)), make([]bool, len(r.Valid.Loss))
			for i, v := range r.Valid.Loss {
				values[i], fresh[i] = float64(v), true
			}
			t.Curves, t.Fresh = append(t.Curves, values), append(t.Fresh, fresh)
		}
		t.configure(len(rows), func(i int) (map[string]float64, string) { return rows[i].HP, "" })
		tasks = append(tasks, t)
	}
	return tasks, nil
}

// configure sets Parameters, Rows and Kinds from the parameters that all configurations have.
func (t *Task) configure(n int, of func(int) (map[string]float64, string)) {
	shared := map[string]int{}
	for i := range n {
		values, _ := of(i)
		for name := range values {
			shared[name]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shared)) {
		if shared[name] == n {
			t.Parameters = append(t.Parameters, name)
		}
	}
	for i := range n {
		values, kind := of(i)
		row := make([]float64, len(t.Parameters))
		for j, name := range t.Parameters {
			row[j] = values[name]
		}
		t.Rows, t.Kinds = append(t.Rows, row), append(t.Kinds, kind)
	}
}

// A table is a line written by lcbench.py or trained.py.
type table struct {
	Task       string
	Parameters []string
	Rows       [][]float64
	// LCBench's surrogate gives only accuracies.
	Accuracy [][]number `json:"val_accuracy"`
	// Others give their set, whether lower or higher values are better ("min" or "max"), and the values.
	Set, Mode string
	Values    [][]number
}

// Tables reads the output of lcbench.py or trained.py. A value that is null, because training diverged, is NaN.
func Tables(text io.Reader) ([]Task, error) {
	z, err := gzip.NewReader(text)
	if err != nil {
		return nil, fmt.Errorf("read tables: %w", err)
	}
	var tasks []Task
	for lines := json.NewDecoder(z); ; {
		var line table
		if err := lines.Decode(&line); errors.Is(err, io.EOF) {
			return tasks, nil
		} else if err != nil {
			return nil, fmt.Errorf("read tables: %w", err)
		}
		task, err := line.task()
		if err != nil {
			return nil, fmt.Errorf("read tables: task %q: %w", line.Task, err)
		}
		tasks = append(tasks, task)
	}
}

func (l *table) task() (Task, error) {
	values := l.Values
	if l.Set == "" {
		l.Set, l.Mode, values = "LCBench", "max", l.Accuracy
	}
	if l.Mode != "min" && l.Mode != "max" {
		return Task{}, fmt.Errorf(`mode: must be "min" or "max", got %q`, l.Mode)
	}
	if len(values) == 0 || len(values) != len(l.Rows) {
		return Task{}, fmt.Errorf("has %d curves for %d rows; each row must have one", len(values), len(l.Rows))
	}
	t := Task{
		Set: l.Set, Name: l.Task, Maximise: l.Mode == "max", Parameters: l.Parameters, Rows: l.Rows, Kinds: make([]string, len(l.Rows)),
	}
	for _, c := range values {
		if len(c) != len(values[0]) {
			return Task{}, fmt.Errorf("has curves of %d and of %d steps; all must have the same number", len(values[0]), len(c))
		}
		curve := make([]float64, len(c))
		for i, v := range c {
			curve[i] = float64(v)
		}
		t.Curves, t.Fresh = append(t.Curves, curve), append(t.Fresh, slices.Repeat([]bool{true}, len(c)))
	}
	return t, nil
}

// A run is a line of AlgoPerf's logs.
type run struct {
	Version, Ruleset, Submission, Workload, Mode string
	HParams                                      map[string]any
	TrainTime                                    []float64 `json:"train_time_s"`
	Value                                        []number
}

const (
	// algoPerfSteps is the number of steps in the training time of a workload's longest run.
	algoPerfSteps = 100
	// Runs with fewer than leastMeasured values and workloads with fewer than leastRuns runs are ignored.
	leastMeasured, leastRuns = 5, 40
)

// algoPerf reads the runs of a rule set and version for the workloads with at least this many runs.
func algoPerf(shared fs.FS, ruleset string, least int) ([]Task, error) {
	const name = "algoperf_jax.jsonl.gz"
	text, err := unzip(shared, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	groups := map[string][]run{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var r run
		if err := json.Unmarshal(strict(lines.Bytes()), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if r.Ruleset == ruleset && r.Version == "algoperf_v05" && len(r.Value) >= leastMeasured {
			groups[r.Workload] = append(groups[r.Workload], r)
		}
	}
	var tasks []Task
	for workload, runs := range groups {
		if len(runs) >= least {
			tasks = append(tasks, workloadTask(strings.TrimSuffix(workload, "_jax"), runs))
		}
	}
	slices.SortFunc(tasks, func(a, b Task) int { return strings.Compare(a.Name, b.Name) })
	return tasks, lines.Err()
}

// workloadTask maps runs to a common axis of training time. The last value of a run that ended early is carried
// forward.
func workloadTask(name string, runs []run) Task {
	t := Task{Set: "AlgoPerf", Name: name, Maximise: runs[0].Mode == "max"}
	end := 0.0
	for _, r := range runs {
		end = max(end, r.TrainTime[len(r.TrainTime)-1])
	}
	for _, r := range runs {
		values, fresh := make([]float64, algoPerfSteps), make([]bool, algoPerfSteps)
		last := -1
		for i := range values {
			before := last
			for last+1 < len(r.Value) && r.TrainTime[last+1] <= end*float64(i+1)/algoPerfSteps*(1+1e-12) {
				last++
			}
			values[i], fresh[i] = math.NaN(), last > before
			if last >= 0 {
				values[i] = float64(r.Value[last])
			}
		}
		t.Curves, t.Fresh = append(t.Curves, values), append(t.Fresh, fresh)
	}
	t.configure(len(runs), func(i int) (map[string]float64, string) { return numbers(runs[i].HParams), runs[i].Submission })
	return t
}

// numbers returns the numeric values.
func numbers(values map[string]any) map[string]float64 {
	found := map[string]float64{}
	for name, v := range values {
		if x, ok := v.(float64); ok {
			found[name] = x
		}
	}
	return found
}

// A number may be null in JSON, for NaN and infinities.
type number float64

// UnmarshalJSON reads a number, or null as NaN.
func (n *number) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*n = number(math.NaN())
		return nil
	}
	var v float64
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	*n = number(v)
	return nil
}

// strict replaces the words that Python writes for numbers that are not finite by null.
func strict(text []byte) []byte {
	for _, word := range []string{"NaN", "-Infinity", "Infinity"} {
		text = bytes.ReplaceAll(text, []byte(word), []byte("null"))
	}
	return text
}

func unzip(shared fs.FS, name string) ([]byte, error) {
	f, err := shared.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return text, nil
}
