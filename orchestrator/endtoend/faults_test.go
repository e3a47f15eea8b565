package endtoend

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// cluster is a server and workers in separate processes.
type cluster struct {
	*server
	t       testing.TB
	dir     string
	locks   string
	args    []string
	workers map[string]*proc
}

// newCluster starts `outbid serve` with further arguments and no workers.
func newCluster(t testing.TB, args ...string) *cluster {
	t.Helper()
	return newClusterIn(t, t.TempDir(), args...)
}

// newClusterIn is newCluster in a given directory.
func newClusterIn(t testing.TB, dir string, args ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: dir, locks: t.TempDir(), args: args, workers: map[string]*proc{}}
	c.server = serve(t, dir, append([]string{
		"serve", "--lease", "4s", "--nats-listen", "127.0.0.1:0", "--store", filepath.Join(dir, "store"),
	}, args...)...)
	return c
}

// worker starts a worker with devices such as "cpu:2"; an empty nats means the server's URL.
func (c *cluster) worker(name, devices, nats string, args ...string) *proc {
	c.t.Helper()
	if nats == "" {
		nats = c.Info.NATS
	}
	p := start(c.t, c.dir, append([]string{
		"worker", "--nats", nats, "--keys", c.Info.Keys, "--name", name, "--devices", devices,
		"--store", filepath.Join(c.dir, "store"), "--dir", filepath.Join(c.dir, "worker-"+name),
	}, args...)...)
	c.workers[name] = p
	return p
}

// restart restarts the server with the same addresses and data.
func (c *cluster) restart() {
	c.t.Helper()
	api, nats := strings.TrimPrefix(c.Info.API, "http://"), strings.TrimPrefix(c.Info.NATS, "nats://")
	args := append([]string{
		"serve", "--lease", "4s", "--store", filepath.Join(c.dir, "store"), "--api", api, "--nats-listen", nats,
	}, c.args...)
	c.server = serve(c.t, c.dir, args...)
}

func TestAKilledWorkerLosesOnlyTime(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.worker("a", "cpu:2", "")
	c.worker("b", "cpu:2", "")
	id := c.submit(job{name: "killed", mode: "well", tuner: hyperband(9), env: map[string]string{"PACE": "100ms"}}.spec(t, c.locks))
	c.waitSteps(id, 8)
	poll(t, "a trial that trains on node a and has steps to do", func() bool {
		return slices.ContainsFunc(c.trials(id), func(v *outbidv1.Trial) bool { return v.GetNode() == "a" && v.GetStep()+1 < v.GetUntilStep() })
	})
	c.workers["a"].kill()
	sw := c.mustDone(id)
	if !told(sw, "node a") {
		t.Errorf("no note about the lost node: %v", sw.GetNotes())
	}
	for _, trial := range c.trials(id) {
		if trial.GetRestarts() != 0 {
			t.Errorf("trial %d was charged %d restarts for a lost node", trial.GetNumber(), trial.GetRestarts())
		}
	}
	noTwoOwners(t, c.locks)
}

func TestAnOrchestratorKilledAtAnyMomentLosesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.worker("a", "cpu:2", "")
	c.worker("b", "cpu:1", "")
	calm := c.outcome(c.submit(job{name: "calm", mode: "well", tuner: hyperband(9)}.spec(t, c.locks)))
	id := c.submit(job{name: "rough", mode: "well", tuner: hyperband(9), env: map[string]string{"PACE": "80ms"}}.spec(t, c.locks))
	rng := rand.New(rand.NewPCG(1, 2))
	reported := map[int32]int64{}
	for kill := range 5 {
		c.waitSteps(id, int64(10*(kill+1)+rng.IntN(8)))
		for _, trial := range c.trials(id) {
			reported[trial.GetNumber()] = max(reported[trial.GetNumber()], trial.GetLast().GetStep())
		}
		c.kill()
		c.restart()
		for _, trial := range c.trials(id) {
			if got := max(trial.GetStep(), trial.GetLast().GetStep()); got < reported[trial.GetNumber()] && trial.GetRestarts() == 0 {
				t.Errorf("kill %d: trial %d had reported step %d and is back at %d", kill, trial.GetNumber(), reported[trial.GetNumber()], got)
			}
		}
	}
	if rough := c.outcome(id); rough != calm {
		t.Errorf("five kills changed the outcome:\n%s\nwithout:\n%s", rough, calm)
	}
	noTwoOwners(t, c.locks)
}

// outcome returns how each trial of a sweep ended.
func (s *server) outcome(id string) string {
	s.t.Helper()
	s.mustDone(id)
	var lines []string
	for _, trial := range s.trials(id) {
		lines = append(lines, fmt.Sprintf("%s %s %d %.6g", trial.GetConfigJson(), trial.GetState(), trial.GetStep(), trial.GetBest()))
	}
	sortStrings(lines)
	return strings.Join(lines, "\n")
}

func TestUpGoesOnWhereItWasKilled(t *testing.T) {
	t.Parallel()
	dir, locks := t.TempDir(), t.TempDir()
	s := serve(t, dir, "up", "--devices", "cpu:2")
	id := s.submit(job{name: "up", mode: "well", tuner: random(6), trials: 6, env: map[string]string{"PACE": "100ms"}}.spec(t, locks))
	s.waitSteps(id, 8)
	s.kill()
	s = serve(t, dir, "up", "--devices", "cpu:2")
	s.mustDone(id)
	noTwoOwners(t, locks)
	s.stop()
}

func TestACutWorkerStopsAtItsLease(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	cable := newCable(t, strings.TrimPrefix(c.Info.NATS, "nats://"))
	c.worker("far", "cpu:1", "nats://"+cable.addr)
	id := c.submit(job{name: "cut", mode: "well", tuner: random(40), trials: 1, env: map[string]string{"PACE": "100ms"}}.spec(t, c.locks))
	c.waitSteps(id, 5)
	cable.cut()
	poll(t, "the trial to be taken from the lost node", func() bool {
		return c.sweep(id).GetCounts().GetQueued() == 1
	})
	c.worker("near", "cpu:1", "")
	poll(t, "the trial to go on elsewhere", func() bool {
		trials := c.trials(id)
		return trials[0].GetNode() == "near" && trials[0].GetStep() > 6
	})
	cable.mend()
	c.mustDone(id)
	noTwoOwners(t, c.locks)
	poll(t, "the node to come back", func() bool {
		for _, n := range c.nodes() {
			if n.GetInfo().GetName() == "far" {
				return n.GetState() == outbidv1.NodeState_NODE_STATE_UP
			}
		}
		return false
	})
}

func TestProcessesThatFailAreRestartedFromTheirCheckpoint(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir(), "up", "--devices", "cpu:4")
	for mode, want := range map[string]string{
		"crash":  "out of luck",
		"hang":   "nothing for",
		"killed": "signal 9",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s, locks := s.in(t), t.TempDir()
			id := s.submit(job{name: mode, mode: mode, tuner: random(5), trials: 2, change: func(sp *outbidv1.SweepSpec) {
				sp.HangTimeout = "2s"
			}}.spec(t, locks))
			sw := s.mustDone(id)
			if !told(sw, want) || !told(sw, "restart 1 of 3") {
				t.Errorf("notes do not say %q: %v", want, sw.GetNotes())
			}
			for _, trial := range s.trials(id) {
				if trial.GetRestarts() != 1 || trial.GetStep() != 5 {
					t.Errorf("trial %d: %d restarts, step %d", trial.GetNumber(), trial.GetRestarts(), trial.GetStep())
				}
			}
			noTwoOwners(t, locks)
		})
	}
}

func TestATrialThatAlwaysFailsIsGivenUp(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir(), "up", "--devices", "cpu:2")
	one := int32(1)
	id := s.submit(job{name: "always", mode: "always", tuner: random(5), trials: 2, change: func(sp *outbidv1.SweepSpec) {
		sp.MaxRestarts = &one
	}}.spec(t, t.TempDir()))
	sw := s.wait(id)
	if sw.GetCounts().GetFailed() != 2 || !told(sw, "failed for good") {
		t.Errorf("%v, notes %v", sw.GetCounts(), sw.GetNotes())
	}
}

func TestNaNIsTheWorstValueAndIsTold(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir(), "up", "--devices", "cpu:2")
	id := s.submit(job{name: "nan", mode: "nan", tuner: random(4), trials: 1}.spec(t, t.TempDir()))
	sw := s.mustDone(id)
	if !told(sw, "reported NaN") || sw.GetBest().GetBestStep() != 1 {
		t.Errorf("notes %v, best at step %d", sw.GetNotes(), sw.GetBest().GetBestStep())
	}
}

func TestTwoOrchestrators(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	natsServer := startNATS(t)
	args := func(name string) []string {
		return []string{"serve", "--nats", natsServer, "--standby", "--lease", "4s", "--store", filepath.Join(dir, "store"), "--data", filepath.Join(dir, name)}
	}
	first := serveData(t, dir, "one", args("one")...)
	locks := t.TempDir()
	start(t, dir, "worker", "--nats", natsServer, "--keys", first.Info.Keys, "--name", "w", "--devices", "cpu:2",
		"--store", filepath.Join(dir, "store"), "--dir", filepath.Join(dir, "w"))
	id := first.submit(job{name: "two", mode: "well", tuner: random(60), trials: 2, env: map[string]string{"PACE": "100ms"}}.spec(t, locks))
	first.waitSteps(id, 4)

	second := startServer(t, dir, "two", append(args("two"), "--keys", first.Info.Keys)...)
	second.until("standing by")
	// Meanwhile the standby maintains its history of reports, so it will not have to read those of the first server.
	poll(t, "the history of the standby", func() bool {
		mark, err := os.ReadFile(filepath.Join(dir, "two", "history", "complete-to"))
		return err == nil && strings.TrimSpace(string(mark)) > "0"
	})
	first.pause()
	second.ready()
	first.resume()
	select {
	case <-first.ended:
	case <-time.After(patience):
		t.Fatal("the deposed server is still running")
	}
	second.mustDone(id)
	for _, trial := range second.trials(id) {
		if trial.GetRestarts() != 0 || trial.GetResumes() != 0 || trial.GetStep() != 60 {
			t.Errorf("the take-over disturbed trial %d: %v", trial.GetNumber(), trial)
		}
	}
	noTwoOwners(t, locks)
}

func told(sw *outbidv1.Sweep, what string) bool {
	for _, n := range sw.GetNotes() {
		if strings.Contains(n.GetText(), what) {
			return true
		}
	}
	return false
}
