package control_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// hear answers the question of the last step, and those of the steps that follow.
func (b *bench) hear(bidders bidder.Bidder) {
	b.tb.Helper()
	for b.out.Bids != nil {
		b.step(b.out.Bids.Ask(bidders))
	}
}

// rounds returns the rounds that the last step decided.
func (b *bench) rounds() []*outbidv1.RoundDecided {
	var all []*outbidv1.RoundDecided
	for _, e := range b.out.Events {
		if r := e.GetRoundDecided(); r != nil {
			all = append(all, r)
		}
	}
	return all
}

// auctioneer returns a bench on which sweeps bid under Themis, with bidders that bid like the built-in one.
func auctioneer(t *testing.T, devices int) (*bench, *themis.Policy) {
	t.Helper()
	p := themis.New(policy.NewOptions(map[string]string{"f": "0"}))
	spec := sim.Sweep("s", "min", 4, sim.Tuner("random", map[string]int64{"max_steps": 9}))
	b := benchOf(t, control.NewCore((&moody{}).settings(), p, state.New()), devices, spec)
	if b.out.Bids != nil || len(b.rounds()) == 0 {
		t.Fatal("a round without bidders outside waits for some")
	}
	return b, p
}

// join adds a node.
func (b *bench) join(node string, devices int) {
	info := &outbidv1.NodeInfo{Name: node, Boot: "b"}
	for i := range devices {
		info.Devices = append(info.Devices, &outbidv1.Device{Index: int32(i), Type: "cpu"})
	}
	b.step(control.Uplink{Message: &outbidv1.Uplink{Node: node, Boot: "b", Info: info}})
}

// submit submits a sweep and returns its ID.
func (b *bench) submit(spec *outbidv1.SweepSpec) (id string) {
	b.tb.Helper()
	b.step(control.Submit{Spec: spec, Done: func(got string, err error) {
		if id = got; err != nil {
			b.tb.Fatal(err)
		}
	}})
	return id
}

// While external bidders are asked, reports, submissions and workers are handled; only rounds wait. An answer counts
// once, and only for the open question. A policy keeps no state from a round that waits.
func TestOnlyRoundsWaitForBidders(t *testing.T) {
	t.Parallel()
	b, p := auctioneer(t, 4)
	memory := func() string {
		data, err := p.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	b.join("n2", 2)
	before := memory()
	b.submit(moodySweep("moody"))
	question := b.out.Bids
	if question == nil || len(b.rounds()) > 0 || memory() != before {
		t.Fatalf("question %v, rounds %v", question, b.rounds())
	}
	for step := range int64(3) {
		var messages []*outbidv1.UplinkMessage
		for _, f := range b.forks {
			messages = append(messages, report(f, uint64(step+1), step+1))
		}
		b.say(messages)
		reports := slices.Collect(func(yield func(*outbidv1.Event) bool) {
			for _, e := range b.out.Events {
				if e.GetTrialReported() != nil && !yield(e) {
					return
				}
			}
		})
		if len(reports) != 4 || len(b.rounds()) > 0 || b.out.Bids != nil {
			t.Errorf("%d of 4 reports were decided, rounds %v", len(reports), b.rounds())
		}
	}
	b.submit(sim.Sweep("s", "min", 4, sim.Tuner("random", nil)))
	answer := question.Ask(bidder.BuiltIn{})
	unknown := answer
	unknown.Question++
	if b.step(unknown); len(b.rounds()) > 0 {
		t.Error("an answer to a question that was not asked began a round")
	}
	b.step(answer)
	if len(b.rounds()) != 1 || b.rounds()[0].GetAuction() == nil {
		t.Fatalf("the answer led to %v", b.out.Events)
	}
	b.step(control.Tick{}) // the round before asked a tuner for more
	seq := b.core.State().Seq
	if b.step(answer); b.core.State().Seq != seq {
		t.Errorf("an answer that came twice led to %v", b.out.Events)
	}
}

// Devices that were free when bidders were asked may be taken when they answer, and a sweep that asked may be gone.
// Such bids are dropped. The others count, and are in the ledger as they counted.
func TestBidsThatNoLongerFit(t *testing.T) {
	t.Parallel()
	row := func(node string, rho float64) bidder.Row {
		return bidder.Row{Gangs: []bidder.Gangs{{Count: 1, Machines: 1, Devices: 1, Type: "cpu", Node: node}}, Rho: rho}
	}
	ask := func(t *testing.T) (*bench, string, control.BidsAnswer) {
		b, _ := auctioneer(t, 4)
		b.join("n2", 1)
		b.join("n3", 1)
		id := b.submit(moodySweep("moody"))
		answer := b.out.Bids.Ask(bidder.BuiltIn{})
		if _, asked := answer.Answers[id]; !asked {
			t.Fatalf("%s was not asked: %v", id, answer)
		}
		answer.Answers[id] = bidder.Table{Rho: 9, Ideal: 1, Rows: []bidder.Row{row("n2", 2), row("n3", 3)}}
		return b, id, answer
	}
	t.Run("a node is gone", func(t *testing.T) {
		t.Parallel()
		b, id, answer := ask(t)
		b.step(control.Uplink{Message: &outbidv1.Uplink{Node: "n2", Boot: "b", Leaving: true}})
		b.step(answer)
		got := bidderOf(t, b, id)
		if len(got.GetBids()) != 1 || got.GetBids()[0].GetGangs()[0].GetNode() != "n3" || len(got.GetWon()) != 1 {
			t.Errorf("it bids %v and won %v", got.GetBids(), got.GetWon())
		}
	})
	t.Run("a sweep is gone", func(t *testing.T) {
		t.Parallel()
		b, id, answer := ask(t)
		b.step(control.Command{Sweep: id, Command: outbidv1.SweepCommand_SWEEP_COMMAND_STOP, Done: func(error) {}})
		b.step(answer)
		if st := b.core.State(); !st.Sweeps[id].Done() || len(st.Nodes["n2"].Leases)+len(st.Nodes["n3"].Leases) > 0 {
			t.Error("a sweep that is gone was given devices")
		}
	})
	t.Run("a sweep came after the question", func(t *testing.T) {
		t.Parallel()
		b, _, answer := ask(t)
		late := b.submit(moodySweep("moody"))
		b.step(answer)
		if got := bidderOf(t, b, late); got.GetRefused() == "" || len(got.GetBids()) > 0 {
			t.Errorf("one that was not asked bids %v", got)
		}
	})
}

// bidderOf returns a sweep's entry in the rounds of the last step.
func bidderOf(t *testing.T, b *bench, sweep string) *outbidv1.Bidder {
	t.Helper()
	for _, r := range b.rounds() {
		for _, got := range r.GetAuction().GetBidders() {
			if got.GetSweep() == sweep {
				return got
			}
		}
	}
	t.Fatalf("%s is not in the round: %v", sweep, b.rounds())
	return nil
}

// slowBidders bid like the built-in bidder, after a delay.
type slowBidders struct {
	takes time.Duration
	asked atomic.Int32
}

func (*slowBidders) Names() []string { return []string{"moody"} }

func (s *slowBidders) Bid(o *bidder.Offer, apps []*bidder.AppState) ([]bidder.Table, error) {
	s.asked.Add(1)
	pass(s.takes)
	return bidder.BuiltIn{}.Bid(o, apps)
}

// leadAuctions runs a loop whose sweeps may have such a bidder, with a node.
func leadAuctions(t *testing.T, record ledger.Ledger, bidders control.Bidders) (l *control.Loop, end func()) {
	t.Helper()
	set := settings()
	set.Bidders = bidders
	l, end = leadBy(t, themis.New(policy.NewOptions(nil)), set, record, time.Now)
	l.Uplink(&outbidv1.Uplink{Node: "n", Boot: "b", Info: &outbidv1.NodeInfo{Devices: []*outbidv1.Device{{Type: "cpu"}, {Type: "cpu"}}}})
	return l, end
}

// While a bidder hangs for a minute, reports are decided at once, and workers are seen. The round comes after the
// answer.
func TestAHangingBidderDoesNotDelayReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bidders := &slowBidders{takes: time.Minute}
		l, end := leadAuctions(t, ledger.NewMemory(), bidders)
		defer end()
		spec := sim.Sweep("told", "min", 1, sim.Tuner("random", map[string]int64{"max_steps": 1000}))
		spec.Workload, spec.Resources = &outbidv1.SweepSpec_External{External: &outbidv1.External{}}, nil
		told, err := l.Submit(t.Context(), spec, "me", "")
		if err != nil {
			t.Fatal(err)
		}
		asked, err := l.Ask(t.Context(), told, "c")
		if err != nil {
			t.Fatal(err)
		}
		bids, err := l.Submit(t.Context(), moodySweep("moody"), "me", "")
		if err != nil {
			t.Fatal(err)
		}
		for step := range int64(59) {
			began := time.Now()
			if _, err := l.Tell(t.Context(), &outbidv1.TellTrialRequest{Sweep: told, LeaseId: asked.GetLeaseId(), Reports: []*outbidv1.Report{
				{Step: step + 1, Metrics: map[string]float64{"loss": 1}},
			}}); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 0 {
				t.Errorf("a report was decided after %s", took)
			}
			l.Uplink(&outbidv1.Uplink{Node: "n", Boot: "b"})
			pass(time.Second)
		}
		if running := runningTrials(t, l, bids); running > 0 || bidders.asked.Load() != 1 {
			t.Errorf("%d trials run before their bidder bid; it was asked %d times", running, bidders.asked.Load())
		}
		if got := stateOf(t, l, "n"); got != outbidv1.NodeState_NODE_STATE_UP {
			t.Errorf("the node is %s", got)
		}
		pass(2 * time.Second)
		if running := runningTrials(t, l, bids); running != 2 {
			t.Errorf("%d trials run after their bidder bid, want 2", running)
		}
	})
}

func runningTrials(t *testing.T, l *control.Loop, sweep string) (n int) {
	t.Helper()
	trials, err := l.Trials(sweep, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, trial := range trials {
		if trial.GetState() == outbidv1.TrialState_TRIAL_STATE_RUNNING {
			n++
		}
	}
	return n
}

// A leader that ends while a bidder is asked leaves no trace of the question. The next leader asks about its own
// state, and the ledger of both is replayed without a bidder.
func TestTheNextLeaderAsksBiddersAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		record := natsClock{ledger.NewMemory(), new(time.Time)}
		bidders := &slowBidders{takes: 10 * time.Second}
		first, end := leadAuctions(t, record, bidders)
		id, err := first.Submit(t.Context(), moodySweep("moody"), "me", "")
		if err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		end()
		pass(10 * time.Second) // its answer is not used
		second, end := leadAuctions(t, natsClock{record.Another(), record.last}, bidders)
		pass(5 * time.Second)
		if running := runningTrials(t, second, id); running > 0 {
			t.Errorf("%d trials run before their bidder bid", running)
		}
		pass(6 * time.Second)
		if running := runningTrials(t, second, id); running != 2 || bidders.asked.Load() != 2 {
			t.Errorf("%d trials run; the bidder was asked %d times", running, bidders.asked.Load())
		}
		end()
		audit, _, err := control.Replay(t.Context(), settings(), themis.New(policy.NewOptions(nil)), record.Another())
		if err != nil || audit.Decisions < 2 || audit.Differing > 0 {
			t.Errorf("replay: %v, %+v", err, audit)
		}
	})
}
