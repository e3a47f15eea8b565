package endtoend

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis"
	servers "github.com/outbid-dev/outbid/orchestrator/server"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// slowPolicy is Themis with a delay before each round.
type slowPolicy struct {
	*themis.Policy
	takes time.Duration
	log   *slog.Logger
}

// slowRound is its log message after each round.
const slowRound = "a round took its time"

func (p slowPolicy) Decide(v *policy.View) policy.Plan {
	pause(p.takes)
	p.log.Info(slowRound)
	return p.Policy.Decide(v)
}

// serveSlowPolicy is `outbid serve` in a directory, with a policy that delays each round. It returns an exit code.
func serveSlowPolicy(takes, dir string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	err := func() error {
		d, err := time.ParseDuration(takes)
		if err != nil {
			return err
		}
		s, err := servers.Open(ctx, servers.Config{
			Data: filepath.Join(dir, "data"), Store: filepath.Join(dir, "store"), API: "127.0.0.1:0", Lease: 15 * time.Second,
			ReadyFile: filepath.Join(dir, "ready.json"), Version: "test", Logger: log, Policy: "themis",
			Policies: registry.Product().With(map[string]registry.Maker{
				"themis": func(o *policy.Options) policy.Policy { return slowPolicy{themis.New(o), d, log} },
			}),
		})
		if err != nil {
			return err
		}
		if err := s.Run(ctx, nil); err != nil {
			return err
		}
		return s.Close()
	}()
	if err != nil {
		log.Error("the server ended", "err", err)
		return 1
	}
	return 0
}

// newSlowCluster is newCluster with a policy that delays each round.
func newSlowCluster(t *testing.T, takes time.Duration) *cluster {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := newProc(t, dir, self, dir)
	p.cmd.Env = append(os.Environ(), "POLICY_TAKES="+takes.String())
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.watch([]string{"serve, with a slow policy"})
	p.minds([]string{"serve, with a slow policy"})
	ready := filepath.Join(dir, "ready.json")
	waitFile(t, p, ready)
	c := &cluster{server: &server{proc: p}, t: t, dir: dir, locks: t.TempDir(), workers: map[string]*proc{}}
	c.connect(ready)
	return c
}

// slowRounds returns how many rounds the slow policy has decided.
func (c *cluster) slowRounds() int {
	text, _ := c.out.text()
	return strings.Count(text, slowRound)
}

// TestAPolicyThatTakesFiveSeconds checks a policy that takes five seconds for each round. Only trials that wait for
// devices are delayed: reports are decided as fast as by a server with a fast policy, reads are unaffected, no lease of
// another sweep ends, and no worker is lost. A replay of the ledger gives the same decisions.
func TestAPolicyThatTakesFiveSeconds(t *testing.T) {
	t.Parallel()
	const takes = 5 * time.Second
	c, twin := newSlowCluster(t, takes), newSlowCluster(t, 0)
	c.worker("n1", "cpu:4", "")
	id, told, calm := c.long(), c.external("told", 2), twin.external("told", 2)
	c.stallBeside(twin, id, func() {
		before, began := c.slowRounds(), time.Now()
		reports, usual := told.timeReports(), calm.timeReports()
		other := c.submit(job{name: "other", mode: "well", tuner: random(3), trials: 3}.spec(t, c.locks))
		for c.sweep(other).GetState() < outbidv1.SweepState_SWEEP_STATE_DONE {
			c.mustGoOn(id, 20*time.Second)
			pause(time.Second)
		}
		c.mustDone(other)
		took, rounds := time.Since(began), c.slowRounds()-before
		p99, twins := reports(), usual()
		t.Logf("%d rounds in %s; reports: p99 %.1f ms meanwhile, %.1f ms of a server whose policy takes no time", rounds, took, p99, twins)
		if took < takes || rounds == 0 {
			t.Errorf("another sweep was done after %s and %d rounds, and a round takes %s", took, rounds, takes)
		}
		if most := max(500, 3*twins); p99 > most {
			t.Errorf("reports took %.1f ms (p99) while the policy took its time, want at most %.1f", p99, most)
		}
	})
	c.stop()
	mustRepeat(t, c.dir, "data")
}
