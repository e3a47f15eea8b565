package endtoend

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// gatedBidder is a bidder that creates a file when it is asked for bids, and answers like the built-in bidder once
// another file exists.
type gatedBidder struct{ asked, open string }

func (g gatedBidder) Bid(o *bidder.Offer, apps []*bidder.AppState) ([]bidder.Table, error) {
	tables, err := bidder.BuiltIn{}.Bid(o, apps) // for the offer at the time of the request
	if err := os.WriteFile(g.asked, nil, 0o600); err != nil {
		return nil, err
	}
	for !exists(g.open) {
		pause(20 * time.Millisecond)
	}
	return tables, err
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// gate controls such a bidder from a test.
type gate struct {
	t           *testing.T
	asked, open string
}

func newGate(t *testing.T) gate {
	t.Helper()
	dir := t.TempDir()
	return gate{t, filepath.Join(dir, "asked"), filepath.Join(dir, "open")}
}

// args returns the arguments of a server with that bidder.
func (g gate) args() []string {
	g.t.Helper()
	self, err := os.Executable()
	if err != nil {
		g.t.Fatal(err)
	}
	return []string{"--lease", "15s", "--bidder", "gated=" + self + " " + g.asked + " " + g.open, "--bidder-timeout", "2m"}
}

func (g gate) awaitQuestion() {
	g.t.Helper()
	poll(g.t, "the bidder to be asked", func() bool { return exists(g.asked) })
}

func (g gate) release() {
	g.t.Helper()
	if err := os.WriteFile(g.open, nil, 0o600); err != nil {
		g.t.Fatal(err)
	}
}

// gated submits a sweep with that bidder once the bidder is up. Until then it cannot bid, and the sweep gets leftovers.
func (c *cluster) gated(trials int) string {
	c.t.Helper()
	c.until("a bidder is up")
	spec := job{
		name: "gated", mode: "well", tuner: random(2), trials: int32(trials), env: map[string]string{"PACE": "100ms"},
	}.spec(c.t, c.locks)
	spec.Agent = &outbidv1.Agent{Plugin: "gated"}
	return c.submit(spec)
}

// timeReports continuously reports one trial until the returned function is called, which returns the 99th percentile
// of the time for a decision, in milliseconds.
func (c client) timeReports() (stop func() (p99 float64)) {
	c.t.Helper()
	asked, err := c.AskTrial(c.t.Context(), &outbidv1.AskTrialRequest{Sweep: c.sweep, Client: "talk"})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	var all timings
	var wg sync.WaitGroup
	wg.Go(func() {
		pace := time.NewTicker(20 * time.Millisecond)
		defer pace.Stop()
		for step := int64(1); ctx.Err() == nil; step++ {
			began := time.Now()
			_, err := c.TellTrial(ctx, &outbidv1.TellTrialRequest{
				Sweep: c.sweep, Trial: asked.GetTrial().GetNumber(), LeaseId: asked.GetLeaseId(),
				Reports: []*outbidv1.Report{{Step: step, Metrics: map[string]float64{"loss": 1 / float64(step)}}},
			})
			if err != nil && ctx.Err() == nil {
				c.t.Errorf("report %d: %v", step, err)
				return
			}
			all.taken = append(all.taken, time.Since(began).Seconds()*1000)
			select {
			case <-ctx.Done():
			case <-pace.C:
			}
		}
	})
	return func() float64 {
		cancel()
		wg.Wait()
		return quantile(all.taken, .99)
	}
}

// bidder returns the entry of the first round in which a sweep bids.
func (c *cluster) bidder(id string) (found *outbidv1.Bidder) {
	c.t.Helper()
	poll(c.t, id+" to bid", func() bool {
		rounds, err := c.ListRounds(c.t.Context(), &outbidv1.ListRoundsRequest{Sweep: id, Limit: 100})
		if err != nil {
			c.t.Fatal(err)
		}
		for _, r := range rounds.GetRounds() { // the newest first
			for _, b := range r.GetAuction().GetBidders() {
				if b.GetSweep() == id && len(b.GetBids()) > 0 {
					found = b
				}
			}
		}
		return found != nil
	})
	return found
}

// TestReportsWaitForNoBidder checks a bidder that hangs. Reports of other sweeps are decided as fast as by an
// undisturbed server. The server is killed while it waits; the next one asks the bidder again, which then bids. The
// ledger of both can be replayed without a bidder.
func TestReportsWaitForNoBidder(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCluster(t, g.args()...)
	c.worker("n1", "cpu:2", "")
	twin := newCluster(t, "--lease", "15s")
	other, calm := c.external("told", 2), twin.external("told", 2)
	id := c.gated(60) // enough that some remain when the bidder is up again
	g.awaitQuestion()
	reports, usual := other.timeReports(), calm.timeReports()
	pause(6 * time.Second)
	if sw := c.sweep(id); sw.GetSteps() > 0 {
		t.Error("its trials train, and its bidder has not bid")
	}
	p99, twins := reports(), usual()
	t.Logf("reports: p99 %.1f ms while a bidder hung, %.1f ms of another server meanwhile", p99, twins)
	if most := max(50, 3*twins); p99 > most {
		t.Errorf("reports took %.1f ms (p99) while a bidder hung, want at most %.1f", p99, most)
	}
	twin.stop()
	c.kill()
	if err := os.Remove(g.asked); err != nil {
		t.Fatal(err)
	}
	c.restart() // its sweep gets leftovers while the bidder starts
	g.awaitQuestion()
	g.release()
	c.bidder(id)
	c.mustDone(id)
	c.stop()
	mustRepeat(t, c.dir, "data")
}

// TestBidsForWhatIsGoneAreDropped checks a worker that leaves while a bidder is asked about its devices: bids for these
// devices are dropped, and bids for others count.
func TestBidsForWhatIsGoneAreDropped(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCluster(t, g.args()...)
	c.worker("n1", "cpu:1", "")
	leaves := c.worker("n2", "cpu:3", "")
	poll(t, "both workers", func() bool { return len(c.nodes()) == 2 })
	id := c.gated(4)
	g.awaitQuestion()
	leaves.stop()
	poll(t, "n2 to have left", func() bool {
		for _, n := range c.nodes() {
			if n.GetInfo().GetName() == "n2" && n.GetState() != outbidv1.NodeState_NODE_STATE_UP {
				return true
			}
		}
		return false
	})
	g.release()
	b := c.bidder(id)
	for _, bid := range b.GetBids() {
		devices := int32(0)
		for _, gang := range bid.GetGangs() {
			devices += gang.GetCount() * gang.GetMachines() * gang.GetDevices()
		}
		if devices > 1 {
			t.Errorf("a bid for %d devices counted, and one was left", devices)
		}
	}
	c.mustDone(id)
	c.stop()
	mustRepeat(t, c.dir, "data")
}
