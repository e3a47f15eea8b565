package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
	"github.com/outbid-dev/outbid/orchestrator/sim/shape"
	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// simRequest is one run.
type simRequest struct {
	name    string
	options map[string]string
	make    func() (policy.Policy, error)
	nodes   []cluster.Node
	jobs    *trace.Trace
	table   *trace.Throughputs
	seed    uint64
	// round is 0 for the policy's own.
	round, delay time.Duration
	// slowdown S by spread, four numbers; nil for the workload's own.
	slowdown []float64
	mishaps  sim.Mishaps
	// bars is how many leases are kept for a Gantt chart.
	bars int
	// events takes every event as a JSON line; nil for nobody.
	events io.Writer
	// progress is told now and then.
	progress func(simProgress)
}

// simResult is how a run went.
type simResult = measure.Result

// simProgress is how far a run is.
type simProgress struct {
	// at is the virtual time in seconds.
	at         float64
	done, jobs int
}

// mostRows is the largest cluster that a Gantt chart is drawn of, and mostBars its most leases.
const (
	mostRows = 512
	mostBars = 50_000
)

// runSims runs every policy and prints each result as soon as it and those before it are there, as shown makes it. It
// returns those that there are, also when one failed.
func (a *app) runSims(ctx context.Context, p *simPlan, shown func(simResult) any) ([]simResult, error) {
	if p.save != "" {
		if err := writeWhole(p.save, p.jobs.WriteJSON); err != nil {
			return nil, err
		}
	}
	a.notef("%s", simHeading(p))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make([]chan simOutcome, len(p.makers))
	for i := range ended {
		ended[i] = make(chan simOutcome, 1)
	}
	show := newSimShow(a)
	var all sync.WaitGroup
	all.Go(func() { a.startSims(ctx, p, ended, show) })
	results, err := a.printSims(p, ended, show, shown)
	cancel()
	all.Wait()
	if err == nil && p.apps != "" {
		err = writeWhole(p.apps, func(w io.Writer) error { return writeFates(w, results) })
	}
	return results, err
}

// writeFates writes a line for each app and policy.
func writeFates(w io.Writer, results []simResult) error {
	lines := json.NewEncoder(w)
	for _, r := range results {
		for _, f := range r.Series.Fates {
			if err := lines.Encode(f); err != nil {
				return fmt.Errorf("write how apps fared: %w", err)
			}
		}
	}
	return nil
}

// startSims runs the policies in order, so many at once, and returns when all have ended.
func (a *app) startSims(ctx context.Context, p *simPlan, ended []chan simOutcome, show *simShow) {
	var all sync.WaitGroup
	turns := make(chan struct{}, p.parallel)
	for i, m := range p.makers {
		select {
		case turns <- struct{}{}:
		case <-ctx.Done():
			ended[i] <- simOutcome{err: context.Cause(ctx)}
			continue
		}
		all.Go(func() {
			r, err := a.runSim(ctx, p, m, show)
			ended[i] <- simOutcome{r, err}
			<-turns
		})
	}
	all.Wait()
}

// simOutcome is a run's result or what went wrong.
type simOutcome struct {
	result simResult
	err    error
}

// simHeading says what runs on what.
func simHeading(p *simPlan) string {
	s := p.jobs.Summary()
	apps := ""
	if s.Apps > 0 {
		apps = fmt.Sprintf(" in %s apps", formatCount(int64(s.Apps)))
	}
	return fmt.Sprintf("%s: %s jobs%s over %s; %s", p.jobs.Name, formatCount(int64(s.Jobs)), apps, formatDuration(s.Span),
		shape.Describe(p.nodes))
}

// printSims takes in the results in order, and prints them as lines if that was asked for.
func (a *app) printSims(p *simPlan, ended []chan simOutcome, show *simShow, shown func(simResult) any) ([]simResult, error) {
	var results []simResult
	for i, m := range p.makers {
		o := <-ended[i]
		show.clear()
		if o.err != nil {
			if errors.Is(o.err, context.Canceled) || errors.Is(o.err, errInterrupted) {
				return results, o.err
			}
			return results, fmt.Errorf("policy %s: %w", m.name, o.err)
		}
		results = append(results, o.result)
		if p.out == formatTable {
			continue
		}
		line, err := encodeJSON(shown(o.result), false)
		if err != nil {
			return results, err
		}
		a.printf("%s\n", line)
	}
	return results, nil
}

// runSim runs one policy.
func (a *app) runSim(ctx context.Context, p *simPlan, m policyMaker, show *simShow) (simResult, error) {
	r := simRequest{
		name: m.name, options: m.options, make: m.make, nodes: p.nodes, jobs: p.jobs, table: p.table, seed: p.request.Seed, round: p.round,
		delay: p.delay, slowdown: p.slowdown, mishaps: p.mishaps, progress: func(at simProgress) { show.tell(m.name, at) },
	}
	if devices := countSimDevices(p.nodes); p.plots != "" && devices <= mostRows {
		r.bars = mostBars
	}
	peak := watchMemory()
	var out simResult
	run := func(w io.Writer) (err error) {
		r.events = w
		out, err = a.simulate(ctx, r)
		return err
	}
	var err error
	if p.events == "" {
		err = run(nil)
	} else {
		err = writeWhole(eventsFile(p.events, m.name, len(p.makers)), func(w io.Writer) error {
			buffered := bufio.NewWriterSize(w, 1<<20)
			return errors.Join(run(buffered), buffered.Flush())
		})
	}
	out.PeakMemory = peak()
	if p.timeless {
		out = out.Timeless()
	}
	return out, err
}

func countSimDevices(nodes []cluster.Node) int {
	n := 0
	for i := range nodes {
		n += len(nodes[i].Devices)
	}
	return n
}

// eventsFile is the name for one of several policies: events.jsonl becomes events-fifo.jsonl.
func eventsFile(file, policy string, policies int) string {
	if policies == 1 {
		return file
	}
	end := filepath.Ext(file)
	return strings.TrimSuffix(file, end) + "-" + policy + end
}

// memoryEvery is how often the process's memory is looked at.
const memoryEvery = 50 * time.Millisecond

// watchMemory looks at the process's memory until peak is called, which returns the most it saw in bytes.
func watchMemory() (peak func() int64) {
	runtime.GC()
	done, most := make(chan struct{}), make(chan int64)
	go func() {
		tick := time.NewTicker(memoryEvery)
		defer tick.Stop()
		highest := memoryNow()
		for {
			select {
			case <-tick.C:
				highest = max(highest, memoryNow())
			case <-done:
				most <- max(highest, memoryNow())
				return
			}
		}
	}()
	return func() int64 {
		close(done)
		return <-most
	}
}

// memoryNow is what the Go runtime has from the operating system.
func memoryNow() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	held := samples[0].Value.Uint64() - samples[1].Value.Uint64()
	return int64(min(held, math.MaxInt64))
}

// simShow tells how far runs are: on a terminal in one line that changes, elsewhere every few seconds.
type simShow struct {
	app     *app
	mu      sync.Mutex
	started map[string]time.Time
	last    time.Time
	shown   bool
}

// The pauses between two words of progress.
const (
	terminalPause = 200 * time.Millisecond
	filePause     = 10 * time.Second
)

func newSimShow(a *app) *simShow {
	return &simShow{app: a, started: map[string]time.Time{}, last: a.now()}
}

func (s *simShow) tell(policy string, at simProgress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.app.now()
	if s.started[policy].IsZero() {
		s.started[policy] = now
	}
	pause := filePause
	if s.app.term.err {
		pause = terminalPause
	}
	if now.Sub(s.last) < pause {
		return
	}
	s.last = now
	line := fmt.Sprintf("%s: %s of %s jobs, simulated %s in %s", policy, formatCount(int64(at.done)),
		formatCount(int64(at.jobs)), formatDuration(at.at), formatDuration(now.Sub(s.started[policy]).Seconds()))
	if !s.app.term.err {
		s.app.notef("%s", line)
		return
	}
	s.shown = true
	_, _ = fmt.Fprintf(s.app.stderr, "\r\x1b[K%s", line)
}

// clear removes the line that changes.
func (s *simShow) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown {
		s.shown = false
		_, _ = io.WriteString(s.app.stderr, "\r\x1b[K")
	}
}
