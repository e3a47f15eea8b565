// Package study runs a predefined comparison: a YAML file of tables, each with policies and their options on a
// generated workload, over the same seeds. Every run is written as a line of a results file when it ends, so an
// interrupted study continues from there. The tables are made only from that file.
package study

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/lab/compare"
	"github.com/outbid-dev/outbid/orchestrator/lab/papers"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
	"github.com/outbid-dev/outbid/orchestrator/sim/workload"
	"github.com/outbid-dev/outbid/orchestrator/spec"
)

// Study is a comparison.
type Study struct {
	// First and Last are the first and last seed of the workloads, and of policies that use random numbers.
	First uint64 `yaml:"first_seed"`
	Last  uint64 `yaml:"last_seed"`
	// RestartDelay is the time until a job trains again after its devices changed.
	RestartDelay time.Duration `yaml:"restart_delay"`
	// Lists are rows that several tables share, as YAML anchors.
	Lists  map[string][]Row `yaml:"lists"`
	Tables []Table          `yaml:"tables"`
}

// Table is a comparison of policies on one workload and cluster.
type Table struct {
	Name    string `yaml:"name"`
	Cluster string `yaml:"cluster"`
	// Made is the generator of the workload, and Options are its settings, NAME=VALUE.
	Made    string   `yaml:"made"`
	Options []string `yaml:"options"`
	// Load multiplies the density of arrivals; 0 is 1.
	Load float64 `yaml:"load"`
	// Seeds is the number of the study's seeds that the table uses, the first ones; 0 for all.
	Seeds int `yaml:"seeds"`
	// Rows are run in this order; the others are compared with the first.
	Rows []Row `yaml:"rows"`
	// Trace is a file of jobs for the generator, and Throughputs one of measured steps per second. Both are in the data
	// folder of the run.
	Trace       string `yaml:"trace"`
	Throughputs string `yaml:"throughputs"`
	// Forks are the costs of fork slots: to save, to average, and for each checkpoint that is averaged.
	Forks sim.ForkCosts `yaml:"forks"`
	// Columns are those of the table, or nil for the columns of fairness, for which each app is also simulated alone.
	// The first is also shown relative to the table's first row, seed by seed.
	Columns []Column `yaml:"columns"`
	// Lies is set if the table has apps that over-report; the apps of its first row report the truth.
	Lies bool `yaml:"lies"`
}

// Row is a policy with options.
type Row struct {
	Policy  string   `yaml:"policy"`
	Options []string `yaml:"options"`
	// Mixed allows jobs to mix device types.
	Mixed bool `yaml:"mixed"`
}

// Name returns the row's name in its table.
func (r Row) Name() string {
	name := strings.Join(append([]string{r.Policy}, r.Options...), " ")
	if r.Mixed {
		name += ", mixed"
	}
	return name
}

// Column is a figure of a table, by its name in the results, in units of Over.
type Column struct {
	Head   string  `yaml:"head"`
	Figure string  `yaml:"figure"`
	Over   float64 `yaml:"over"`
	// Ratio also shows it relative to the table's first row, seed by seed.
	Ratio bool `yaml:"ratio"`
}

// seeds lists the seeds of a table.
func (s *Study) seeds(t *Table) []uint64 {
	var all []uint64
	for seed := s.First; seed <= s.Last && (t.Seeds == 0 || len(all) < t.Seeds); seed++ {
		all = append(all, seed)
	}
	return all
}

// Read parses a study and checks everything that does not need a workload.
func Read(data []byte) (*Study, error) {
	s := &Study{RestartDelay: 10 * time.Second}
	if err := spec.SyntaxError(data); err != nil {
		return nil, fmt.Errorf("the study: %w", err)
	}
	in := yaml.NewDecoder(bytes.NewReader(data))
	in.KnownFields(true)
	if err := in.Decode(s); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the study: %w", err)
	}
	if len(s.Tables) == 0 || s.Last < s.First {
		return nil, errors.New("the study has no tables, or no seeds: want first_seed, last_seed and tables")
	}
	var names []string
	for _, t := range s.Tables {
		if t.Name == "" || len(t.Rows) == 0 || slices.Contains(names, t.Name) {
			return nil, fmt.Errorf("table %q: want a unique name, and rows", t.Name)
		}
		if t.Seeds < 0 {
			return nil, fmt.Errorf("table %q: seeds is %d: want 1 or more, or nothing for all of the study's", t.Name, t.Seeds)
		}
		names = append(names, t.Name)
		var rows []string
		for _, r := range t.Rows {
			if slices.Contains(rows, r.Name()) {
				return nil, fmt.Errorf("table %q: row %s is listed twice", t.Name, r.Name())
			}
			rows = append(rows, r.Name())
		}
		for _, c := range t.Columns {
			if _, there := figuresOf(&measure.Result{})[c.Figure]; !there {
				return nil, fmt.Errorf("table %q: there is no figure %q", t.Name, c.Figure)
			}
		}
	}
	return s, nil
}

// plan returns the experiment of some rows of a table with a seed; data is the folder of its files.
func (s *Study) plan(t *Table, seed uint64, rows []Row, data string) (*experiment.Plan, error) {
	load := t.Load
	if load == 0 {
		load = 1
	}
	o := compare.Options{Alone: t.Columns == nil, Made: papers.Workload{Name: t.Made, Options: t.Options}}
	o.Options = experiment.Options{
		Registry: lab.Policies(), Cluster: t.Cluster, Policies: []string{rows[0].Policy}, Parallel: 1, RestartDelay: s.RestartDelay, Timeless: true,
		ForkCosts: t.Forks, Throughputs: inFolder(data, t.Throughputs),
		Workload: workload.Request{Seed: seed, Load: load, Length: 1, File: inFolder(data, t.Trace)},
	}
	o.Mishaps.NodeBack = time.Minute
	p, err := compare.NewPlan(o)
	if err != nil {
		return nil, fmt.Errorf("table %q: %w", t.Name, err)
	}
	p.Factories = nil
	for _, r := range rows {
		made, err := experiment.PolicyFactories(p.Registry, []string{r.Policy}, r.Options, 0, seed, nil)
		if err != nil {
			return nil, fmt.Errorf("table %q: %s: %w", t.Name, r.Name(), err)
		}
		made[0].Mixed = r.Mixed
		p.Factories = append(p.Factories, made...)
	}
	return p, nil
}

// inFolder returns the path of a file in a folder, or "" for none.
func inFolder(folder, file string) string {
	if file == "" {
		return ""
	}
	return filepath.Join(folder, file)
}
