package control_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// site is a loop with a node on which every trial trains at once as ordered.
type site struct {
	*control.Loop
	seq    uint64
	began  map[uint64]int64 // the step that each fork has reached, by lease ID
	orders chan *outbidv1.Orders
	ended  chan error
	stop   context.CancelFunc
	wg     sync.WaitGroup
}

func openSite(tb testing.TB, devices int, cfg control.Config) *site {
	tb.Helper()
	s := &site{began: map[uint64]int64{}, orders: make(chan *outbidv1.Orders, 1000), ended: make(chan error, 1)}
	cfg.History, cfg.Logger = &reports{}, slog.New(slog.DiscardHandler)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Send = func(o *outbidv1.Orders) error { s.orders <- o; return nil }
	cfg.Delete = func(context.Context, string) error { return nil }
	cfg.Info = func() *outbidv1.GetServerInfoResponse { return &outbidv1.GetServerInfoResponse{} }
	var err error
	if s.Loop, err = control.Open(tb.Context(), cfg); err != nil {
		tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	s.stop = stop
	go func() { s.ended <- s.Run(ctx) }()
	info := &outbidv1.NodeInfo{Name: "n1", Boot: "b1"}
	for i := range devices {
		info.Devices = append(info.Devices, &outbidv1.Device{Index: int32(i), Type: "cpu"})
	}
	s.Uplink(&outbidv1.Uplink{Node: "n1", Boot: "b1", Info: info})
	s.wg.Go(func() {
		for {
			select {
			case o := <-s.orders:
				s.Uplink(s.train(o))
			case <-ctx.Done():
				return
			}
		}
	})
	tb.Cleanup(func() {
		stop()
		if err := <-s.ended; err != nil {
			tb.Error(err)
		}
		s.wg.Wait()
	})
	return s
}

// train follows orders.
func (s *site) train(o *outbidv1.Orders) *outbidv1.Uplink {
	up := &outbidv1.Uplink{Node: "n1", Boot: "b1", FirstSeq: o.GetAckedSeq() + 1}
	if o.GetAckedSeq() < s.seq {
		return up // wait until everything before is acknowledged
	}
	say := func(f *outbidv1.ForkRef, m *outbidv1.UplinkMessage) {
		m.Fork = f
		up.Messages = append(up.Messages, m)
	}
	for _, a := range o.GetAssignments() {
		f := a.GetFork()
		done, began := s.began[f.GetLeaseId()]
		if !began {
			say(f, &outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Began{Began: &outbidv1.ForkBegan{FromStep: a.GetBody().GetStart().GetStep()}}})
			done = a.GetBody().GetStart().GetStep()
		}
		up.Forks = append(up.Forks, &outbidv1.ForkStatus{Fork: f, Version: a.GetVersion()})
		if a.GetVerdict() != outbidv1.Verdict_VERDICT_TRAIN {
			if done >= 0 {
				say(f, &outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{
					Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, Step: done,
				}}})
				s.began[f.GetLeaseId()] = -1
			}
			continue
		}
		until := max(a.GetUntilStep(), 1)
		for step := done + 1; step <= until; step++ {
			m := report(nil, uint64(step), step)
			m.GetReport().TrainSeconds = float64(step)
			say(f, m)
		}
		if done < until {
			if a.GetUntilStep() > 0 {
				key := fmt.Sprintf("checkpoints/%s/%d/%d-%d.ckpt", f.GetSweep(), f.GetTrial(), until, f.GetLeaseId())
				say(f, &outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Saved{Saved: &outbidv1.Checkpoint{Key: key, Step: until}}})
			}
			say(f, &outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Reached{Reached: &outbidv1.ForkReached{Step: until}}})
		}
		s.began[f.GetLeaseId()] = max(done, until)
	}
	s.seq += uint64(len(up.GetMessages()))
	return up
}

// await waits until a sweep has ended.
func (s *site) await(tb testing.TB, id string) {
	tb.Helper()
	for {
		_, _, next, err := s.Changes(id, 1<<64-1)
		if err != nil {
			tb.Fatal(err)
		}
		sweep, err := s.Sweep(id)
		if err != nil {
			tb.Fatal(err)
		}
		if sweep.GetState() >= outbidv1.SweepState_SWEEP_STATE_DONE {
			return
		}
		select {
		case <-next:
		case err := <-s.ended:
			s.ended <- err
			tb.Fatalf("the loop ended: %v", err)
		case <-time.After(time.Minute):
			tb.Fatalf("%s stands still: %v", id, sweep)
		}
	}
}

// everything calls each read method of the loop once.
func (s *site) everything(tb testing.TB) {
	tb.Helper()
	for _, sweep := range s.Sweeps() {
		id := sweep.GetId()
		one, err := s.Sweep(id)
		if err != nil || !strings.HasPrefix(id, one.GetSpec().GetName()) {
			tb.Errorf("%s: %v, %v", id, one, err)
		}
		trials, err := s.Trials(id, 0, 1000)
		if err != nil || len(trials) < int(sweep.GetCounts().GetTotal()) && sweep.GetCounts().GetTotal() < 1000 {
			tb.Errorf("%s has %d trials, want %d, %v", id, len(trials), sweep.GetCounts().GetTotal(), err)
		}
		best, err := s.BestTrials(id, 3, 0)
		for i := 1; i < len(best); i++ {
			if best[i].Best != nil && best[i-1].GetBest() > best[i].GetBest() {
				tb.Errorf("%s: trial %d of %v before one of %v", id, best[i].GetNumber(), best[i-1].GetBest(), best[i].GetBest())
			}
		}
		changed, _, _, err2 := s.Changes(id, 0)
		_, err3 := s.Superseded(id)
		_, err4 := s.Rounds(tb.Context(), 0, id, 10)
		for _, err := range []error{err, err2, err3, err4} {
			if err != nil {
				tb.Error(err)
			}
		}
		if len(changed) < len(trials) {
			tb.Errorf("%s: %d trials changed since the beginning, and it has %d", id, len(changed), len(trials))
		}
	}
	s.Nodes()
	s.Info()
	s.Tenants()
	s.Blobs()
	s.Deleted()
	_ = s.MayReach(&outbidv1.AccessRequest{Node: "n1", Fork: &outbidv1.ForkRef{Sweep: "s", Trial: 0, LeaseId: 1}})
	_ = s.CheckBidder(&outbidv1.SweepSpec{Agent: &outbidv1.Agent{Plugin: "none"}})
}

// fair returns how sweeps fare, and counts the calls.
type fair struct {
	asked atomic.Int64
}

func (f *fair) of(v *policy.View, a *policy.App, over bool) *outbidv1.Fairness {
	f.asked.Add(1)
	return themis.Fairness(v, a, over)
}

// Everything is read repeatedly while every tuner decides, so that the race detector can find conflicts.
func TestEverythingIsReadWhileEveryTunerDecides(t *testing.T) {
	t.Parallel()
	set := settings()
	set.Fairness = (&fair{}).of
	s := openSite(t, 8, control.Config{
		Settings: set, Policy: baseline.DRF{}, Ledger: ledger.NewMemory(), SnapshotEvery: 500,
		Fairness: (&fair{}).of,
	})
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for ctx.Err() == nil {
				s.everything(t)
			}
		})
	}
	var ids []string
	for _, kind := range []string{"random", "asha", "asha-stop", "halving", "hyperband", "median", "performance", "pbt"} {
		spec := sim.Sweep(kind, "min", 12, sim.Tuner(kind, map[string]int64{"max_steps": 9, "eta": 3, "min_steps": 1, "trials": 9}))
		if kind == "halving" || kind == "hyperband" || kind == "pbt" {
			spec.Limits = nil
		}
		id, err := s.Submit(t.Context(), spec, "me", "")
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if one, err := s.Sweep(id); err != nil || one.GetOutlook() == nil {
			t.Errorf("%s just submitted: %v, outlook %v", id, err, one.GetOutlook())
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		s.await(t, id)
	}
	stop()
	readers.Wait()
	for _, sweep := range s.Sweeps() {
		if sweep.GetState() != outbidv1.SweepState_SWEEP_STATE_DONE || sweep.GetOutlook() == nil || sweep.GetFairness() == nil {
			t.Errorf("%s is %s: %s; outlook %v, fairness %v", sweep.GetId(), sweep.GetState(), sweep.GetReason(), sweep.GetOutlook(),
				sweep.GetFairness())
		}
	}
}

// slowDisk is a ledger whose next append can be delayed.
type slowDisk struct {
	ledger.Ledger
	next atomic.Pointer[chan struct{}]
	held chan struct{}
}

// hold delays the next append until release is called.
func (d *slowDisk) hold() (release func()) {
	d.held = make(chan struct{})
	ch := make(chan struct{})
	d.next.Store(&ch)
	return sync.OnceFunc(func() { close(ch) })
}

func (d *slowDisk) Append(ctx context.Context, at time.Time, events []*outbidv1.Event) (*outbidv1.Batch, error) {
	if ch := d.next.Swap(nil); ch != nil {
		close(d.held)
		<-*ch
	}
	return d.Ledger.Append(ctx, at, events)
}

// While the ledger is slow, readers see the state before the append, and nothing that the ledger does not hold yet.
func TestReadsDoNotWaitForTheDisk(t *testing.T) {
	t.Parallel()
	disk := &slowDisk{Ledger: ledger.NewMemory()}
	s := openSite(t, 2, control.Config{Settings: settings(), Policy: baseline.DRF{}, Ledger: disk})
	first, err := s.Submit(t.Context(), sim.Sweep("first", "min", 2, sim.Tuner("random", map[string]int64{"max_steps": 3})), "me", "")
	if err != nil {
		t.Fatal(err)
	}
	s.await(t, first)
	release := disk.hold()
	defer release()
	submitted := make(chan error, 1)
	go func() {
		_, err := s.Submit(context.WithoutCancel(t.Context()), sim.Sweep("second", "min", 2, sim.Tuner("random", nil)), "me", "")
		submitted <- err
	}()
	<-disk.held
	read := make(chan []*outbidv1.Sweep, 1)
	go func() {
		s.everything(t)
		read <- s.Sweeps()
	}()
	select {
	case sweeps := <-read:
		if len(sweeps) != 1 || sweeps[0].GetId() != first {
			t.Errorf("read %v, want what was in the ledger", sweeps)
		}
	case <-time.After(time.Minute):
		t.Fatal("readers wait for the disk")
	}
	select {
	case err := <-submitted:
		t.Fatalf("answered before it was in the ledger: %v", err)
	default:
	}
	release()
	if err := <-submitted; err != nil {
		t.Fatal(err)
	}
	if got := len(s.Sweeps()); got != 2 {
		t.Errorf("%d sweeps are read, want 2", got)
	}
}

// finished runs sweeps to their end and opens a loop on the resulting ledger.
func finished(tb testing.TB, sweeps, trials int, cfg control.Config) *site {
	tb.Helper()
	spec := sim.Sweep("s", "min", int32(trials), sim.Tuner("random", map[string]int64{"max_steps": 1}))
	b := newBench(tb, 64, spec)
	for range sweeps - 1 {
		b.step(control.Submit{Spec: spec, Done: func(_ string, err error) {
			if err != nil {
				tb.Fatal(err)
			}
		}})
	}
	for len(b.core.State().Live) > 0 {
		b.work()
	}
	data, err := b.core.Snapshot()
	if err != nil {
		tb.Fatal(err)
	}
	if err := b.ledger.SaveSnapshot(tb.Context(), b.core.State().Seq, data); err != nil {
		tb.Fatal(err)
	}
	cfg.Settings, cfg.Policy, cfg.Ledger = settings(), baseline.FIFO{}, b.ledger.Another()
	cfg.Now = func() time.Time { return b.now }
	return openSite(tb, 4, cfg)
}

// Unchanged results are reused. A list of sweeps that have ended needs no forecasts, and each sweep is drawn once. A
// running sweep has a new forecast after a while, however many read it.
func TestListsReuseUnchangedResults(t *testing.T) {
	t.Parallel()
	f := &fair{}
	s := finished(t, 200, 5, control.Config{Fairness: f.of})
	before := s.Sweeps()
	for range 3 {
		for i, sweep := range s.Sweeps() {
			if sweep != before[i] {
				t.Fatalf("%s has ended and was drawn again", sweep.GetId())
			}
		}
	}
	if n := f.asked.Load(); n != 0 {
		t.Errorf("%d forecasts were made of sweeps that have ended", n)
	}
	began := time.Now()
	spec := sim.Sweep("held", "min", 5, sim.Tuner("random", nil))
	spec.Resources.Devices = &outbidv1.DeviceCount{Min: 64, Max: 64} // more than there are
	if _, err := s.Submit(t.Context(), spec, "me", ""); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		s.Sweeps()
	}
	if n, most := f.asked.Load(), 2+int64(time.Since(began)/time.Second); n < 1 || n > most {
		t.Errorf("%d forecasts of one sweep for 100 lists in %s, want 1 to %d", n, time.Since(began), most)
	}
}

// BenchmarkListSweeps lists 1,000 sweeps of 100 trials each that have ended, and another that changes between two
// lists.
func BenchmarkListSweeps(b *testing.B) {
	f := &fair{}
	s := finished(b, 1000, 100, control.Config{Fairness: f.of})
	for b.Loop() {
		if got := len(s.Sweeps()); got != 1000 {
			b.Fatalf("%d sweeps", got)
		}
	}
}
