package endtoend

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	bidderplugin "github.com/outbid-dev/outbid/orchestrator/bidder/plugin"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// disk is a separate file system that can be frozen: writes and syncs wait until it is thawed.
type disk struct {
	t   testing.TB
	dir string
}

// newDisk mounts an image on a directory, or skips the test if that is impossible.
func newDisk(t testing.TB, dir string) *disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount a disk that can be frozen")
	}
	image := filepath.Join(t.TempDir(), "image")
	for _, command := range [][]string{
		{"truncate", "-s", "256M", image}, {"mkfs.ext4", "-q", image}, {"mkdir", "-p", dir}, {"mount", "-o", "loop", image, dir},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("this machine does not let a test mount a disk: %s: %v: %s", command[0], err, bytes.TrimSpace(out))
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	d := &disk{t, dir}
	<-d.freeze(0)
	return d
}

// freeze stalls the disk for the given seconds; the channel is closed afterwards. A separate process thaws it, even if
// the test fails.
func (d *disk) freeze(seconds int) (over <-chan struct{}) {
	d.t.Helper()
	if out, err := exec.Command("fsfreeze", "-f", d.dir).CombinedOutput(); err != nil {
		d.t.Skipf("this machine's disks cannot be frozen: %v: %s", err, bytes.TrimSpace(out))
	}
	thaw := exec.Command("sh", "-c", fmt.Sprintf("sleep %d; fsfreeze -u %s", seconds, d.dir))
	if err := thaw.Start(); err != nil {
		_ = exec.Command("fsfreeze", "-u", d.dir).Run()
		d.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := thaw.Wait(); err != nil {
			d.t.Errorf("the disk could not be let go: %v", err)
		}
	}()
	d.t.Cleanup(func() { <-done })
	return done
}

// timings collects the durations of reads.
type timings struct {
	mu    sync.Mutex
	taken []float64
}

// timeReads continuously lists and shows until the returned function is called, which returns the 99th percentile in
// milliseconds.
func (s *server) timeReads(id string) (stop func() (p99 float64)) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	var all timings
	var wg sync.WaitGroup
	calls := map[string]func() error{
		"ListSweeps": func() error { _, err := s.ListSweeps(ctx, &outbidv1.ListSweepsRequest{}); return err },
		"GetSweep":   func() error { _, err := s.GetSweep(ctx, &outbidv1.GetSweepRequest{Sweep: id}); return err },
		"ListTrials": func() error { _, err := s.ListTrials(ctx, &outbidv1.ListTrialsRequest{Sweep: id}); return err },
		"ListNodes":  func() error { _, err := s.ListNodes(ctx, &outbidv1.ListNodesRequest{}); return err },
		"ListRounds": func() error { _, err := s.ListRounds(ctx, &outbidv1.ListRoundsRequest{}); return err },
	}
	for name, call := range calls {
		wg.Go(func() {
			pace := time.NewTicker(100 * time.Millisecond)
			defer pace.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-pace.C:
				}
				began := time.Now()
				if err := call(); err != nil {
					if ctx.Err() == nil {
						s.t.Errorf("%s: %v", name, err)
					}
					return
				}
				all.mu.Lock()
				all.taken = append(all.taken, time.Since(began).Seconds()*1000)
				all.mu.Unlock()
			}
		})
	}
	return func() float64 {
		cancel()
		wg.Wait()
		return quantile(all.taken, .99)
	}
}

// pause lets time pass in which others are watched.
func pause(d time.Duration) { <-time.After(d) }

// stall watches the reads of a server, and the leases of a sweep, while something is stalled. id is a sweep whose
// trials run all the time. For comparison it also reads from another server that is not stalled, because on a busy
// machine the reads of both wait for a core.
func (c *cluster) stall(id string, during func()) {
	c.t.Helper()
	c.stallBeside(newCluster(c.t, "--lease", "15s"), id, during)
}

// stallBeside is stall with a given server for comparison, which it stops.
func (c *cluster) stallBeside(twin *cluster, id string, during func()) {
	c.t.Helper()
	twin.worker("twin", "cpu:2", "")
	calm := twin.timeReads(twin.long())
	before := c.leases(id)
	busy := c.timeReads(id)
	during()
	p99, usual := busy(), calm()
	c.t.Logf("reads: p99 %.1f ms while it stood still, %.1f ms of another server meanwhile", p99, usual)
	if most := max(50, 3*usual); p99 > most {
		c.t.Errorf("reads took %.1f ms (p99), want at most %.1f", p99, most)
	}
	twin.stop()
	c.mustGoOn(id, 20*time.Second)
	if after := c.leases(id); !slices.Equal(before, after) {
		c.t.Errorf("leases of %s: %v before, %v after", id, before, after)
	}
	for _, n := range c.nodes() {
		if n.GetState() != outbidv1.NodeState_NODE_STATE_UP {
			c.t.Errorf("node %s is %s: %s", n.GetInfo().GetName(), n.GetState(), n.GetReason())
		}
	}
}

// mustGoOn fails unless reports of a sweep are decided within a time.
func (s *server) mustGoOn(id string, within time.Duration) {
	s.t.Helper()
	steps, began := s.sweep(id).GetSteps(), time.Now()
	poll(s.t, id+" to go on", func() bool { return s.sweep(id).GetSteps() > steps })
	if took := time.Since(began); took > within {
		s.t.Errorf("it took %s until reports of %s were decided, want at most %s", took, id, within)
	}
}

// leases returns the leases of a sweep's trials.
func (s *server) leases(id string) []uint64 {
	s.t.Helper()
	var ids []uint64
	for _, n := range s.nodes() {
		for _, u := range n.GetUses() {
			if u.GetFork().GetSweep() == id {
				ids = append(ids, u.GetFork().GetLeaseId())
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// long is a sweep of two trials that report for minutes.
func (c *cluster) long() string {
	c.t.Helper()
	id := c.submit(job{
		name: "long", mode: "well", tuner: random(20_000), trials: 2, env: map[string]string{"PACE": "100ms"},
	}.spec(c.t, c.locks))
	c.waitSteps(id, 10)
	return id
}

// TestADiskThatStandsStill stalls the ledger's disk for ten seconds: reads are unaffected, no lease ends, no worker is
// lost, the server keeps the lead, and reports are decided as soon as the disk continues.
func TestADiskThatStandsStill(t *testing.T) {
	dir := t.TempDir()
	d := newDisk(t, filepath.Join(dir, "data", "nats"))
	c := newClusterIn(t, dir, "--lease", "15s")
	c.worker("n1", "cpu:2", "")
	id := c.long()
	c.stall(id, func() {
		over := d.freeze(10)
		pause(time.Second)
		steps := c.sweep(id).GetSteps()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := c.SubmitSweep(ctx, &outbidv1.SubmitSweepRequest{
			Spec: job{name: "late", mode: "well", tuner: random(1), trials: 1}.spec(t, c.locks),
		}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a sweep was answered that the disk cannot hold: %v", err)
		}
		if now := c.sweep(id).GetSteps(); now > steps {
			t.Errorf("%d steps were shown that the disk cannot hold", now-steps)
		}
		<-over
	})
	if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-c.ended
	if c.err != nil {
		t.Errorf("the server ended with %v", c.err)
	}
}

// TestATunerThatHangs checks a tuner in a separate process that hangs for twice as long as a lease: only its sweep
// fails. Meanwhile another sweep is submitted and done, and reports and commands of others are decided.
func TestATunerThatHangs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--lease", "15s")
	c.worker("n1", "cpu:4", "")
	id := c.long()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	settings, err := structpb.NewStruct(map[string]any{"steps": 9, "takes": 60})
	if err != nil {
		t.Fatal(err)
	}
	hangs := job{name: "hangs", mode: "well", tuner: &outbidv1.Tuner{Kind: &outbidv1.Tuner_Plugin{
		Plugin: &outbidv1.PluginTuner{Command: []string{self}, Settings: settings, MaxSteps: 9},
	}}}.spec(t, c.locks)
	usual := c.others()
	c.stall(id, func() {
		stuck := c.submit(hangs)
		took := c.others()
		t.Logf("other sweeps took %s while the tuner hung, %s before", took, usual)
		if s := c.sweep(stuck); s.GetState() != outbidv1.SweepState_SWEEP_STATE_RUNNING && usual < 10*time.Second {
			t.Errorf("other sweeps took %s, %s before; that of the tuner that hangs is %s: %s", took, usual, s.GetState(), s.GetReason())
		}
		failed := c.wait(stuck)
		if failed.GetState() != outbidv1.SweepState_SWEEP_STATE_FAILED || !strings.Contains(failed.GetReason(), "took more than 30s") {
			t.Errorf("its sweep is %s: %s", failed.GetState(), failed.GetReason())
		}
	})
	c.stop()
}

// others submits a sweep and waits until it is done, then submits another one and stops it. It returns how long that
// took.
func (c *cluster) others() time.Duration {
	c.t.Helper()
	began := time.Now()
	c.mustDone(c.submit(job{name: "other", mode: "well", tuner: random(3), trials: 2}.spec(c.t, c.locks)))
	id := c.submit(job{
		name: "stopped", mode: "well", tuner: random(20_000), trials: 1, env: map[string]string{"PACE": "20ms"},
	}.spec(c.t, c.locks))
	c.waitSteps(id, 1)
	if _, err := c.ControlSweep(c.t.Context(), &outbidv1.ControlSweepRequest{
		Sweep: id, Command: outbidv1.SweepCommand_SWEEP_COMMAND_STOP,
	}); err != nil {
		c.t.Error(err)
	}
	c.wait(id)
	return time.Since(began)
}

// serveSlowBidder bids like the built-in bidder, each time after a delay; or, with several arguments, like gatedBidder.
func serveSlowBidder(after string, gate ...string) {
	if len(gate) > 0 {
		bidderplugin.Serve(bidderplugin.Factory{Name: "gated", Version: "1", Bidder: gatedBidder{asked: after, open: gate[0]}})
		return
	}
	d, err := time.ParseDuration(after)
	if err != nil {
		panic(err)
	}
	bidderplugin.Serve(bidderplugin.Factory{Name: "slow", Version: "1", Bidder: slowBidder(d)})
}

type slowBidder time.Duration

func (a slowBidder) Bid(o *bidder.Offer, states []*bidder.AppState) ([]bidder.Table, error) {
	pause(time.Duration(a))
	return bidder.BuiltIn{}.Bid(o, states)
}

// underBidder is a cluster whose sweeps may choose a slow bidder, with a running sweep, and another one that has chosen
// the bidder.
func underBidder(t *testing.T, takes, timeout string) (c *cluster, id string, slow *outbidv1.SweepSpec) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c = newCluster(t, "--lease", "15s", "--bidder", "slow="+self+" "+takes, "--bidder-timeout", timeout)
	c.worker("n1", "cpu:4", "")
	slow = job{name: "slow", mode: "well", tuner: random(2), trials: 2}.spec(t, c.locks)
	slow.Agent = &outbidv1.Agent{Plugin: "slow"}
	return c, c.long(), slow
}

// TestABidderThatHangs checks a bidder in a separate process that hangs: a round waits for it for half a second and
// continues without its bid. Reports are decided all the time, other sweeps are submitted, done and stopped, and its
// sweep gets leftovers.
func TestABidderThatHangs(t *testing.T) {
	t.Parallel()
	c, id, slow := underBidder(t, "1h", "500ms")
	usual := c.others()
	c.stall(id, func() {
		other := c.submit(slow)
		t.Logf("other sweeps took %s while the bidder hung, %s before", c.others(), usual)
		for range 10 {
			c.mustGoOn(id, 10*time.Second)
			pause(time.Second)
		}
		c.mustDone(other)
	})
	c.stop()
}

// TestABidderThatTakesFiveSeconds checks a bidder that takes, and may take, five seconds for each bid: only rounds wait
// for it. Reads are unaffected, and no lease ends.
func TestABidderThatTakesFiveSeconds(t *testing.T) {
	t.Parallel()
	c, id, slow := underBidder(t, "5s", "20s")
	c.stall(id, func() { c.mustDone(c.submit(slow)) })
	c.stop()
}
