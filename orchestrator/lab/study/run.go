package study

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
)

// Line is a run in the results file. Its figures have the names of measure.Result.
type Line struct {
	Table    string             `json:"table"`
	Row      string             `json:"row"`
	Seed     uint64             `json:"seed"`
	Settings string             `json:"settings"`
	Figures  map[string]float64 `json:"figures"`
	// Shared is the time that each app took, by its sweep; only in tables of lies.
	Shared map[string]float64 `json:"shared_s,omitempty"`
}

// key identifies a run by everything that determines it.
type key struct {
	table, row, settings string
	seed                 uint64
}

func (l *Line) key() key { return key{l.Table, l.Row, l.Settings, l.Seed} }

// settings describes everything that determines a table's runs, except row and seed.
func (s *Study) settings(t *Table) string {
	text := fmt.Sprintf("%s, %s %v, load %g, restart %s", t.Cluster, t.Made, t.Options, t.Load, s.RestartDelay)
	if t.Trace != "" || t.Throughputs != "" {
		text += fmt.Sprintf(", from %s and %s", t.Trace, t.Throughputs)
	}
	if t.Forks != (sim.ForkCosts{}) {
		text += fmt.Sprintf(", forks %s, %s and %s each", t.Forks.Upload, t.Forks.Average, t.Forks.Each)
	}
	return text
}

// Results are the lines of a file that belong to a study.
type Results map[key]*Line

// ReadResults reads a results file. An incomplete last line is ignored.
func ReadResults(in io.Reader) (Results, error) {
	all := Results{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		l := &Line{}
		if err := json.Unmarshal(lines.Bytes(), l); err != nil {
			if !json.Valid(bytes.TrimSpace(lines.Bytes())) {
				continue
			}
			return nil, fmt.Errorf("the results: %w", err)
		}
		all[l.key()] = l
	}
	return all, lines.Err()
}

// Missing returns the number of runs of a study without results, and the number of all its runs.
func (s *Study) Missing(got Results) (missing, all int) {
	for i := range s.Tables {
		t := &s.Tables[i]
		for _, seed := range s.seeds(t) {
			n := len(s.missing(t, seed, got))
			missing += n
			all += len(t.Rows)
		}
	}
	return missing, all
}

func (s *Study) missing(t *Table, seed uint64, got Results) []Row {
	var rows []Row
	for _, r := range t.Rows {
		if got[key{t.Name, r.Name(), s.settings(t), seed}] == nil {
			rows = append(rows, r)
		}
	}
	return rows
}

// Run makes every missing run, in the order of tables, seeds and rows, and calls tell with each line. data is the
// folder of the files that tables name.
func (s *Study) Run(ctx context.Context, engine experiment.Engine, data string, got Results, tell func(*Line) error) error {
	for i := range s.Tables {
		t := &s.Tables[i]
		for _, seed := range s.seeds(t) {
			rows := s.missing(t, seed, got)
			if len(rows) == 0 {
				continue
			}
			p, err := s.plan(t, seed, rows, data)
			if err != nil {
				return err
			}
			at := 0
			_, err = p.Run(ctx, experiment.Hooks{Engine: engine, Result: func(r measure.Result) error {
				l := &Line{Table: t.Name, Row: rows[at].Name(), Seed: seed, Settings: s.settings(t), Figures: figuresOf(&r)}
				if t.Lies {
					l.Shared = map[string]float64{}
					for _, f := range r.Series.Fates {
						l.Shared[f.Sweep] = f.Shared
					}
				}
				at++
				got[l.key()] = l
				return tell(l)
			}})
			if err != nil {
				return fmt.Errorf("table %q, seed %d: %w", t.Name, seed, err)
			}
		}
	}
	return nil
}

// figuresOf returns the figures for tables.
func figuresOf(r *measure.Result) map[string]float64 {
	return map[string]float64{
		"rho_max": r.RhoMax, "rho_mean": r.RhoMean, "rho_weighted": r.RhoWeighted, "rho_bound": r.RhoBound, "jain_rho": r.JainRho,
		"si_violations": float64(r.SIViolations), "share_slowdown_max": r.ShareSlowdownMax, "alone_slowdown_max": r.AloneSlowdownMax,
		"alone_slowdown_mean": r.AloneSlowdownMean, "alone_violations": float64(r.AloneViolations), "jct_mean_s": r.JCTMean,
		"gpu_seconds": r.GPUSeconds, "placement_score_mean": r.PlacementScoreMean, "preemptions": float64(r.Preemptions),
		"makespan_s": r.Makespan, "apps": float64(r.Apps), "unfinished": float64(r.Unfinished),
		"utility_total": r.UtilityTotal, "job_sharing_loss": r.JobSharingLoss, "tenant_sharing_loss": r.TenantSharingLoss, "slowdown_mean": r.SlowdownMean,
		"late_mean_s": r.LateMean, "late_sd_s": r.LateSD, "late_steep_mean_s": r.LateSteepMean, "late_steep_sd_s": r.LateSteepSD,
		"jct_p50_s": r.JCTP50, "utilization": r.Utilization, "queue_mean_s": r.QueueMean, "jobs": float64(r.Jobs),
	}
}
