package control_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// market is a policy that gives a sweep as many devices as its bidder's table has rows. It counts its rounds, so that
// it has state.
type market struct {
	bidders bidder.Bidder
	rounds  int
}

func (*market) Name() string                { return "market" }
func (m *market) UseBidder(a bidder.Bidder) { m.bidders = a }
func (m *market) Snapshot() ([]byte, error) { return []byte(strconv.Itoa(m.rounds)), nil }

func (m *market) Restore(data []byte) (err error) {
	m.rounds, err = strconv.Atoi(string(data))
	return err
}

func (m *market) Decide(v *policy.View) policy.Plan {
	m.rounds++
	p := policy.Extend(v)
	record := &outbidv1.Auction{}
	for _, a := range v.Apps {
		tables, err := m.bidders.Bid(onOffer(v), []*bidder.AppState{{App: a.ID, Bidder: a.Spec.GetAgent().GetPlugin()}})
		if err != nil {
			continue
		}
		record.Bidders = append(record.Bidders, &outbidv1.Bidder{
			Sweep: a.ID, Rho: tables[0].Rho, IdealSeconds: tables[0].Ideal, Bids: tables[0].Bids(), Refused: tables[0].Refused,
		})
		running := 0
		for _, j := range a.Jobs {
			if j.Running() {
				running++
			}
		}
		for _, j := range a.Jobs {
			if j.Waiting() && running < len(tables[0].Rows) && p.Place(j, fmt.Sprintf("rho %v", tables[0].Rho)) {
				running++
			}
		}
	}
	plan := p.Plan("a market", "")
	plan.Auction, plan.Next = record, v.Now.Add(time.Millisecond)
	return plan
}

// onOffer returns the free devices.
func onOffer(v *policy.View) *bidder.Offer {
	o := &bidder.Offer{Round: v.Round}
	for i := range v.Nodes {
		if free := v.Free.FreeAt(i, "cpu"); free > 0 {
			o.Lots = append(o.Lots, bidder.Lot{Node: v.Nodes[i].Name, Type: "cpu", Free: free})
		}
	}
	return o
}

// moody bidders answer differently each time they are asked.
type moody struct{ asked int }

func (*moody) Names() []string { return []string{"moody"} }

func (m *moody) Bid(o *bidder.Offer, _ []*bidder.AppState) ([]bidder.Table, error) {
	m.asked++
	table := bidder.Table{Rho: float64(m.asked), Ideal: 1}
	for range m.asked % 4 {
		if len(o.Lots) > 0 {
			table.Rows = append(table.Rows, bidder.Row{Rho: 1, Gangs: []bidder.Gangs{{Count: 1, Machines: 1, Devices: 1, Type: "cpu"}}})
		}
	}
	if m.asked%5 == 0 {
		table = bidder.Table{Refused: "not in the mood"}
	}
	return []bidder.Table{table}, nil
}

func (m *moody) settings() control.Settings {
	set := settings()
	set.Bidders = m
	return set
}

func moodySweep(name string) *outbidv1.SweepSpec {
	spec := sim.Sweep("s", "min", 40, sim.Tuner("random", map[string]int64{"max_steps": 2}))
	spec.Agent = &outbidv1.Agent{Plugin: name}
	return spec
}

// The answer of an external bidder cannot be obtained again. It is in the ledger, from which replays and restarts read
// it.
func TestRoundsOfBiddersAreDecidedAgainFromTheLedger(t *testing.T) {
	t.Parallel()
	live := &moody{}
	p := &market{}
	b := benchOf(t, control.NewCore(live.settings(), p, state.New()), 4, moodySweep("moody"))
	b.hear(live)
	for n := 0; live.asked < 30; n++ {
		if n > 1000 {
			t.Fatalf("the bidder was asked %d times", live.asked)
		}
		b.work()
		b.hear(live)
	}
	later := &moody{asked: 1000}
	audit, _, err := control.Replay(t.Context(), later.settings(), &market{}, b.ledger)
	if err != nil {
		t.Fatal(err)
	}
	if audit.Rounds < 30 || audit.Decisions < 20 || audit.Differing != 0 {
		t.Errorf("of %d rounds %d decisions came out otherwise: %+v", audit.Rounds, audit.Differing, audit.Differences)
	}
	again := &market{}
	core, err := control.Restore(t.Context(), later.settings(), again, b.ledger.Another(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if again.rounds != p.rounds {
		t.Errorf("after a restart the policy has seen %d rounds, not %d", again.rounds, p.rounds)
	}
	if later.asked != 1000 {
		t.Error("a bidder was asked about the past")
	}
	b.core = core
	b.step(control.BidderUp{})
	b.hear(later)
	if later.asked == 1000 {
		t.Error("after a restart the bidders are not asked any more")
	}
}

func TestASweepChoosesABidderThatIsThere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		set   control.Settings
		rules policy.Policy
		want  string
	}{
		{settings(), &market{}, `agent.plugin: this server has no bidder "other"; it has none`},
		{(&moody{}).settings(), &market{}, `agent.plugin: this server has no bidder "other"; it has moody`},
		{
			(&moody{}).settings(), baseline.FIFO{}, `agent.plugin: policy fifo of this server does not hold auctions, so bidder "other" ` +
				`would never be asked; leave agent out, or submit to a server with a policy that does, such as themis`,
		},
	} {
		core := control.NewCore(c.set, c.rules, state.New())
		var got error
		out, err := core.Step(time.Unix(1_700_000_000, 0), control.Submit{Spec: moodySweep("other"), Done: func(_ string, err error) { got = err }})
		if err != nil {
			t.Fatal(err)
		}
		for _, reply := range out.Replies {
			reply()
		}
		if !errors.Is(got, state.ErrInvalid) {
			t.Fatalf("submitting gave %v", got)
		}
		if text := got.Error(); text != state.ErrInvalid.Error()+": "+c.want {
			t.Errorf("submitting gave %q", text)
		}
	}
}
