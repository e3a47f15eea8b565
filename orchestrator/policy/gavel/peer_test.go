package gavel

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// This file runs Gavel's allocations and mechanism in a copy of its simulator's loop and compares them with what
// Gavel's own simulator gives for the same trace.

const shared = "../../../../shared/data/traces/gavel"

type peerJob struct {
	kind          string
	scale         int
	arrival, last float64
	steps, done   int
	failures      int
	rates         []float64
	weight        float64
	dropped       bool
}

// typeNames in the order of their names, as Gavel's matrices have them.
var typeNames = []string{"k80", "p100", "v100"}

func readPeer(t *testing.T, trace string) []*peerJob {
	t.Helper()
	f, err := os.Open(filepath.Join(shared, "simulation_throughputs.json.gz"))
	if err != nil {
		t.Skipf("the shared data is not here: %v", err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var table map[string]map[string]map[string]json.RawMessage
	if err := json.NewDecoder(z).Decode(&table); err != nil {
		t.Fatal(err)
	}
	lines, err := os.Open(filepath.Join(shared, trace))
	if err != nil {
		t.Skipf("the shared data is not here: %v", err)
	}
	defer lines.Close()
	var jobs []*peerJob
	for s := bufio.NewScanner(lines); s.Scan(); {
		jobs = append(jobs, parsePeer(t, s.Text(), table))
	}
	return jobs
}

func parsePeer(t *testing.T, line string, table map[string]map[string]map[string]json.RawMessage) *peerJob {
	t.Helper()
	field := strings.Split(line, "\t")
	number := func(i int) float64 {
		v, err := strconv.ParseFloat(field[i], 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	j := &peerJob{kind: field[0], steps: int(number(5)), scale: int(number(6)), weight: number(7), arrival: number(9)}
	for _, name := range typeNames {
		var rate float64
		if err := json.Unmarshal(table[name][fmt.Sprintf("('%s', %d)", j.kind, j.scale)]["null"], &rate); err != nil {
			t.Fatal(err)
		}
		j.rates = append(j.rates, rate)
	}
	return j
}

// peer is the simulator.
type peer struct {
	t       *testing.T
	policy  string
	jobs    []*peerJob
	active  []int
	workers []int
	rounds  *Rounds
	alone   Alone
	fifo    FIFO
	random  *Mersenne
	shuffle *Mersenne
	now     float64
	busy    float64
	gap     float64
}

type running struct {
	finish float64
	pick   Pick
	steps  int
}

func (p *peer) run() {
	queued, roundStart, roundEnd := 0, 0.0, math.NaN()
	var going []running
	for left := len(p.jobs); left > 0; {
		if queued == len(p.jobs) && len(going) == 0 {
			p.rounds.Last = 0
		}
		if len(going) > 0 {
			slices.SortStableFunc(going, func(a, b running) int {
				return cmp.Or(cmp.Compare(b.finish, a.finish), cmp.Compare(a.pick.Job, b.pick.Job))
			})
			if !math.IsNaN(roundEnd) {
				roundStart = roundEnd
			}
			roundEnd = going[0].finish
			p.now = roundEnd
		} else if queued < len(p.jobs) {
			p.now = p.jobs[queued].arrival
		}
		for _, g := range going {
			if p.done(g, g.finish-roundStart) {
				left--
			}
		}
		for ; queued < len(p.jobs) && p.jobs[queued].arrival <= p.now; queued++ {
			p.active = append(p.active, queued)
			p.rounds.Add(queued)
		}
		going = p.start()
	}
}

// start picks the round that begins now.
func (p *peer) start() []running {
	if p.rounds.Due(p.now) {
		p.rounds.Allocate(p.now, p.allocate())
	}
	round := Round{Order: []int{2, 1, 0}, Workers: p.workers, Strict: strings.HasPrefix(p.policy, "fifo")}
	if !strings.HasSuffix(p.policy, "_perf") {
		p.shuffle.Shuffle(round.Order)
	}
	for _, i := range p.active {
		round.Scale = append(round.Scale, p.jobs[i].scale)
		round.Throughput = append(round.Throughput, p.jobs[i].rates)
	}
	var going []running
	for _, pick := range p.rounds.Pick(round) {
		j := p.jobs[pick.Job]
		rate := j.rates[pick.Type]
		steps := min(int(rate*p.rounds.Length), j.steps-j.done)
		j.last = p.now
		going = append(going, running{finish: p.now + float64(steps)/rate, pick: pick, steps: steps})
	}
	return going
}

// done books a job's round; it says whether the job is gone.
func (p *peer) done(g running, seconds float64) bool {
	j := p.jobs[g.pick.Job]
	j.last = g.finish
	each, rest := g.steps/j.scale, g.steps-g.steps/j.scale*(j.scale-1)
	if rest <= 0 || j.scale > 1 && each <= 0 || seconds <= 0 {
		p.rounds.Changed = true
		if j.failures++; j.failures < 5 {
			return false
		}
		j.dropped = true
	} else {
		j.failures = 0
		j.done += g.steps
		p.rounds.Ran(g.pick.Job, g.pick.Type, seconds)
		p.busy += seconds * float64(j.scale)
	}
	if !j.dropped && j.done < j.steps {
		return false
	}
	p.rounds.Remove(g.pick.Job)
	p.active = slices.DeleteFunc(p.active, func(i int) bool { return i == g.pick.Job })
	return true
}

func (p *peer) allocate() [][]float64 {
	if len(p.active) == 0 {
		return nil
	}
	jobs := Jobs{}
	var steps, elapsed []float64
	for _, n := range p.workers {
		jobs.Workers = append(jobs.Workers, float64(n))
	}
	for _, i := range p.active {
		j := p.jobs[i]
		jobs.Throughput = append(jobs.Throughput, j.rates)
		jobs.Scale = append(jobs.Scale, float64(j.scale))
		jobs.Weight = append(jobs.Weight, j.weight)
		steps = append(steps, float64(j.steps-j.done))
		elapsed = append(elapsed, p.now-j.arrival)
	}
	var a Allocation
	var err error
	switch p.policy {
	case "isolated":
		return jobs.Isolated()
	case "fifo", "fifo_perf":
		var requests []Request
		for _, i := range p.active {
			requests = append(requests, Request{Job: i, Scale: p.jobs[i].scale, Throughput: p.jobs[i].rates})
		}
		return p.fifo.Allocate(requests, p.workers, p.random.Below)
	case "max_min_fairness":
		a, err = jobs.Unaware().MaxMin()
	case "max_min_fairness_perf":
		a, err = jobs.MaxMin()
	case "max_min_fairness_water_filling_perf":
		a, err = jobs.WaterFill(nil)
	case "finish_time_fairness":
		jobs = jobs.Like(2)
		a, err = jobs.FinishTime(steps, elapsed, p.alone.Isolated(p.active, jobs, steps))
	case "finish_time_fairness_perf":
		a, err = jobs.FinishTime(steps, elapsed, p.alone.Isolated(p.active, jobs, steps))
	case "max_sum_throughput_perf":
		a, err = jobs.MaxThroughput(nil, nil)
	case "min_total_duration_perf":
		a, err = jobs.MakespanAsPublished(steps)
		a.Bound = a.Objective
	default:
		p.t.Fatalf("no policy %q", p.policy)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.gap = max(p.gap, a.Gap())
	return a.X
}

// The figures are of Gavel's own simulator, seed 0. Runs are chaotic: of jobs that are equal in everything but rounding
// one goes first, and the 99th percentile is the completion time of one job, the third from the end. Disturbing X by 1e-8
// moves the mean of max_min_fairness by 1 % and its 99th percentile by 7 %.
func TestPeer(t *testing.T) {
	t.Parallel()
	const trace = "peer/gavel300_multi_lam900_s0.trace"
	for _, want := range []struct {
		policy                 string
		mean, p99, makespan, u float64
		// off is how far the 99th percentile may be, in per cent, where it is not 3.
		off float64
	}{
		{policy: "fifo", mean: 55965, p99: 216601, makespan: 463433, u: .684},
		{policy: "fifo_perf", mean: 33294, p99: 58438, makespan: 321328, u: .827},
		{policy: "isolated", mean: 32467, p99: 166180, makespan: 321425, u: .895},
		{policy: "max_min_fairness", mean: 32326, p99: 158106, makespan: 318943, u: .901},
		{policy: "max_min_fairness_perf", mean: 23109, p99: 117278, makespan: 302150, u: .881},
		// Another optimum than ECOS's: it tells apart only jobs whose rho is not the largest.
		{policy: "finish_time_fairness", mean: 37040, p99: 162641, makespan: 318500, u: .903, off: 15},
		{policy: "finish_time_fairness_perf", mean: 24376, p99: 117211, makespan: 301277, u: .887},
		{policy: "max_sum_throughput_perf", mean: 24733, p99: 178178, makespan: 304163, u: .835},
		{policy: "min_total_duration_perf", mean: 45877, p99: 144698, makespan: 298081, u: .878},
	} {
		t.Run(want.policy, func(t *testing.T) {
			t.Parallel()
			p := &peer{
				t: t, policy: want.policy, jobs: readPeer(t, trace), workers: []int{12, 12, 12}, rounds: NewRounds(3, 360, 1920),
				fifo: FIFO{Perf: want.policy == "fifo_perf"}, random: NewMersenne(0, 0), shuffle: NewMersenne(5, 0),
			}
			p.run()
			mean, p99, finished := p.completion()
			off := func(got, want float64) float64 { return 100 * (got/want - 1) }
			t.Logf("mean %.0f (%+.2f %%), p99 %.0f (%+.2f %%), makespan %.0f (%+.2f %%), utilisation %.3f (%.3f), %d done, gap %.1g",
				mean, off(mean, want.mean), p99, off(p99, want.p99), p.now, off(p.now, want.makespan), p.busy/p.now/36, want.u, finished, p.gap)
			if math.Abs(off(mean, want.mean)) > 3 || math.Abs(off(p.now, want.makespan)) > 3 || math.Abs(off(p99, want.p99)) > max(3, want.off) {
				t.Error("further off than 3 %")
			}
			if p.gap > Acceptable {
				t.Errorf("an allocation has a gap of %g", p.gap)
			}
		})
	}
}

// completion are the mean and the 99th percentile of completion times.
func (p *peer) completion() (mean, p99 float64, finished int) {
	var all []float64
	for _, j := range p.jobs {
		if !j.dropped {
			all = append(all, j.last-j.arrival)
			mean += j.last - j.arrival
		}
	}
	slices.Sort(all)
	return mean / float64(len(all)), all[len(all)*99/100], len(all)
}
