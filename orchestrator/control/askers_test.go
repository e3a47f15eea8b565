package control_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// programs makes the tuner processes that a loop starts.
type programs struct {
	mu sync.Mutex
	// takes is how long each answer takes; the limit is 30 s.
	takes         time.Duration
	started, open int
	// handled counts the events sent to the newest process. resumed reports that it began from a snapshot.
	handled int
	resumed bool
}

func (p *programs) start(s tuner.Settings, snapshot []byte) (tuner.Tuner, error) {
	if s.Spec.GetTuner().GetPlugin() == nil {
		return settings().NewTuner(s, snapshot)
	}
	t, err := startProcess(s, snapshot)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started++
	p.open++
	p.handled, p.resumed = 0, len(snapshot) > 0
	return &slowProgram{process: t, of: p}, err
}

func (p *programs) counts() (started, open int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started, p.open
}

type slowProgram struct {
	*process
	of   *programs
	once sync.Once
}

func (s *slowProgram) Handle(e tuner.Event) ([]tuner.Action, error) {
	if s.of.takes > 30*time.Second {
		pass(30 * time.Second)
		return nil, errors.New("it took more than 30s to handle an event")
	}
	pass(s.of.takes)
	s.of.mu.Lock()
	s.of.handled++
	s.of.mu.Unlock()
	return s.process.Handle(e)
}

func (s *slowProgram) Close() {
	s.once.Do(func() {
		s.of.mu.Lock()
		defer s.of.mu.Unlock()
		s.of.open--
	})
}

// leadAsking runs a loop whose sweeps may have such tuners, until end is called.
func leadAsking(t *testing.T, record ledger.Ledger, p *programs) (l *control.Loop, end func()) {
	t.Helper()
	set := settings()
	set.NewTuner = p.start
	return leadWith(t, set, record, time.Now)
}

// While a remote tuner does not answer, sweeps are submitted and get trials at once, and commands are obeyed. After
// its timeout, the tuner's sweep fails and its process ends.
func TestASilentTunerDelaysOnlyItsSweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &programs{takes: time.Minute}
		l, end := leadAsking(t, natsClock{ledger.NewMemory(), new(time.Time)}, p)
		defer end()
		l.Uplink(&outbidv1.Uplink{Node: "n", Boot: "b", Info: &outbidv1.NodeInfo{Devices: []*outbidv1.Device{{Type: "gpu"}, {Type: "gpu"}}}})
		began := time.Now()
		hangs, err := l.Submit(t.Context(), sim.Sweep("hangs", "min", 2, outside("random", 4, 1)), "me", "")
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			id, err := l.Submit(t.Context(), sim.Sweep("other", "min", 2, sim.Tuner("random", nil)), "me", "")
			if err != nil {
				t.Fatal(err)
			}
			if trials, err := l.Trials(id, 0, 100); err != nil || len(trials) == 0 {
				t.Fatalf("%s has %d trials: %v", id, len(trials), err)
			}
			if err := l.Command(t.Context(), id, outbidv1.SweepCommand_SWEEP_COMMAND_STOP, "me"); err != nil {
				t.Fatal(err)
			}
			pass(3 * time.Second)
			l.Uplink(&outbidv1.Uplink{Node: "n", Boot: "b"})
		}
		if took := time.Since(began); took > 16*time.Second {
			t.Errorf("that took %s", took)
		}
		if s, _ := l.Sweep(hangs); s.GetState() != outbidv1.SweepState_SWEEP_STATE_RUNNING {
			t.Errorf("the sweep is %s: %s", s.GetState(), s.GetReason())
		}
		pass(16 * time.Second)
		if s, _ := l.Sweep(hangs); s.GetState() != outbidv1.SweepState_SWEEP_STATE_FAILED || !strings.Contains(s.GetReason(), "took more than 30s") {
			t.Errorf("the sweep is %s: %s", s.GetState(), s.GetReason())
		}
		if started, open := p.counts(); started != 1 || open != 0 {
			t.Errorf("%d processes were started, %d run", started, open)
		}
	})
}

// A question that is open when a leader ends is asked again by the next one, which starts the process and creates the
// same trials.
func TestTheNextLeaderAsksAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		record := natsClock{ledger.NewMemory(), new(time.Time)}
		p := &programs{takes: 10 * time.Second}
		first, end := leadAsking(t, record, p)
		id, err := first.Submit(t.Context(), sim.Sweep("s", "min", 3, outside("random", 4, 1)), "me", "")
		if err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		end()
		pass(10 * time.Second)
		if trials, err := first.Trials(id, 0, 100); err != nil || len(trials) != 0 {
			t.Fatalf("%d trials: %v", len(trials), err)
		}
		if _, open := p.counts(); open != 0 {
			t.Errorf("%d processes outlive their leader", open)
		}
		second, end := leadAsking(t, record, p)
		defer end()
		pass(5 * time.Second)
		if trials, _ := second.Trials(id, 0, 100); len(trials) != 0 {
			t.Errorf("%d trials before the tuner answered", len(trials))
		}
		pass(6 * time.Second)
		if trials, err := second.Trials(id, 0, 100); err != nil || len(trials) != 1 {
			t.Errorf("%d trials: %v", len(trials), err)
		}
		if started, open := p.counts(); started != 2 || open != 1 {
			t.Errorf("%d processes were started, %d run", started, open)
		}
	})
}

// Some answers come with a snapshot of the process, from which the next leader starts it. Only the events since then
// are sent again.
func TestTheNextLeaderContinuesFromASnapshot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		record := natsClock{ledger.NewMemory(), new(time.Time)}
		p := &programs{}
		first, end := leadAsking(t, record, p)
		spec := sim.Sweep("s", "min", 3, outside("random", 1000, 1))
		spec.Workload, spec.Resources = &outbidv1.SweepSpec_External{External: &outbidv1.External{}}, nil
		id, err := first.Submit(t.Context(), spec, "me", "")
		if err != nil {
			t.Fatal(err)
		}
		a, err := first.Ask(t.Context(), id, "c")
		if err != nil || a.GetTrial() == nil {
			t.Fatal(a, err)
		}
		const told = 300
		for step := range told {
			if _, err := first.Tell(t.Context(), &outbidv1.TellTrialRequest{Sweep: id, LeaseId: a.GetLeaseId(), Reports: []*outbidv1.Report{
				{Step: int64(step + 1), Metrics: map[string]float64{"loss": 1}},
			}}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // each question is answered alone, so the snapshot is made after exactly 256
		}
		end() // saves a snapshot of the state
		second, end := leadAsking(t, record, p)
		defer end()
		if b, err := second.Ask(t.Context(), id, "c"); err != nil || b.GetTrial().GetNumber() != 1 {
			t.Fatal(b, err)
		}
		if want := told + 1 - 256 + 1; p.handled != want || !p.resumed {
			t.Errorf("it was told %d things, want %d; from a snapshot: %t", p.handled, want, p.resumed)
		}
	})
}

// Only a limited number of a tenant's tuner processes run at the same time. The sweeps take turns, each from a
// snapshot, and every sweep gets the same trials as without the limit.
func TestSweepsTakeTurnsWithSamplers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &programs{}
		set := settings()
		set.NewTuner = p.start
		set.Limits = func(string, *outbidv1.Tenant) limits.Tenant {
			l := limits.Boundless()
			l.Samplers = 2
			return l
		}
		l, end := leadWith(t, set, natsClock{ledger.NewMemory(), new(time.Time)}, time.Now)
		defer end()
		const sweeps, trials = 5, 4
		var ids []string
		for seed := range sweeps {
			spec := sim.Sweep("s", "min", trials, outside("random", 1000, int64(seed)))
			spec.Workload, spec.Resources = &outbidv1.SweepSpec_External{External: &outbidv1.External{}}, nil
			id, err := l.Submit(t.Context(), spec, "me", "")
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		for trial := range trials {
			for _, id := range ids {
				a, err := l.Ask(t.Context(), id, "c")
				if err != nil || int(a.GetTrial().GetNumber()) != trial {
					t.Fatal(a, err)
				}
				if _, err := l.Tell(t.Context(), &outbidv1.TellTrialRequest{Sweep: id, LeaseId: a.GetLeaseId(), Finished: true, Reports: []*outbidv1.Report{
					{Step: 1, Metrics: map[string]float64{"loss": 1}},
				}}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if _, open := p.counts(); open > 2 {
					t.Fatalf("%d processes run, of 2", open)
				}
			}
		}
		if started, _ := p.counts(); started < sweeps*trials {
			t.Errorf("%d processes were started: nobody took turns", started)
		}
	})
}
