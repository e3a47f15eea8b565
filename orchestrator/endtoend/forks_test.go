package endtoend

import (
	"context"
	endian "encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/objects/objectstest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// forkHold names a file. While it exists, training continues slowly, so that it lasts until a test has seen what it
// waits for.
const forkHold = "FORK_HOLD"

// trainFork is a training program that may be one of several forks. It saves a safetensors file after each step.
func trainFork() int {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	step, err := strconv.ParseInt(os.Getenv("OUTBID_START_STEP"), 10, 64)
	if err != nil {
		return 4
	}
	until, err := strconv.ParseInt(os.Getenv("OUTBID_UNTIL_STEP"), 10, 64)
	if err != nil {
		return 5
	}
	for step < until {
		select {
		case <-stop:
			return 0
		case <-time.After(forkPace(step)):
		}
		step++
		if err := saveTensor(os.Getenv("OUTBID_CHECKPOINT_OUT"), 64<<10); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 6
		}
		if err := report(step, 1/float64(step), os.Getenv("OUTBID_CHECKPOINT_OUT")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 7
		}
	}
	return 0
}

// forkPace returns the duration of a step.
func forkPace(step int64) time.Duration {
	if _, err := os.Stat(os.Getenv(forkHold)); err == nil && step >= 20 {
		return time.Second
	}
	return 40 * time.Millisecond
}

// saveTensor writes a safetensors file with one tensor of n floats.
func saveTensor(path string, n int) error {
	header := fmt.Sprintf(`{"w":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]}}`, n, 4*n)
	data := append(endian.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	if err := os.WriteFile(path+".tmp", append(data, make([]byte, 4*n)...), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// door is a proxy in front of a store that can delay requests.
type door struct {
	url string
	// held receives the first request that waits; refused counts those that the store did not answer.
	held    chan string
	refused atomic.Int64

	mu     sync.Mutex
	method string
	open   chan struct{}
}

// newDoor delays the requests of a method for checkpoints.
func newDoor(t *testing.T, store, method string) *door {
	t.Helper()
	target, err := url.Parse(store)
	if err != nil {
		t.Fatal(err)
	}
	d := &door{held: make(chan string, 1), method: method, open: make(chan struct{})}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // the signed host
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			d.refused.Add(1)
			panic(http.ErrAbortHandler) // the connection breaks like the store's own
		},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.holds(r) {
			select {
			case d.held <- r.URL.Path:
			default:
			}
			select {
			case <-d.open:
			case <-r.Context().Done():
			}
		}
		forward.ServeHTTP(w, r)
	}))
	d.url = s.URL
	t.Cleanup(func() {
		d.letIn()
		s.CloseClientConnections()
		s.Close()
	})
	return d
}

func (d *door) holds(r *http.Request) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.method != "" && r.Method == d.method && strings.Contains(r.URL.Path, "/checkpoints/") && strings.HasSuffix(r.URL.Path, ".ckpt")
}

// letIn stops delaying requests.
func (d *door) letIn() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.method != "" {
		d.method = ""
		close(d.open)
	}
}

// forkCluster is two unlike workers that train one trial as forks, with checkpoints in S3.
type forkCluster struct {
	*server
	t       *testing.T
	dir     string
	s3      *objectstest.Versity
	door    *door
	cable   *cable
	workers map[string]*proc
	id      string
	// hold is a file that delays its trial while it exists.
	hold string
}

// forkSteps is the number of the trial's steps: about two fork slots.
const forkSteps = 200

// newForkCluster starts training on some workers. Requests of the method for checkpoints wait; without a method the
// trial waits until its hold is removed.
func newForkCluster(t *testing.T, method string, workers ...string) *forkCluster {
	t.Helper()
	c := &forkCluster{t: t, dir: t.TempDir(), s3: objectstest.StartVersity(t), workers: map[string]*proc{}}
	c.hold = filepath.Join(c.dir, "hold")
	if method == "" { // nothing waits at the door
		if err := os.WriteFile(c.hold, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.door = newDoor(t, c.s3.Endpoint, method)
	c.serve("127.0.0.1:0")
	c.cable = newCable(t, strings.TrimPrefix(c.Info.NATS, "nats://"))
	for _, name := range workers {
		c.worker(name)
	}
	poll(t, "all workers", func() bool { return len(c.nodes()) == len(workers) })
	c.id = c.submit(job{
		name: "forked", mode: "fork", tuner: random(forkSteps), trials: 1, env: map[string]string{forkHold: c.hold},
		change: func(s *outbidv1.SweepSpec) { s.Resources = &outbidv1.Resources{Forks: "auto"} },
	}.spec(t, t.TempDir()))
	return c
}

// serve starts the server, or restarts it.
func (c *forkCluster) serve(nats string) {
	c.t.Helper()
	env := []string{
		"MINIO_ROOT_USER=" + c.s3.User, "MINIO_ROOT_PASSWORD=" + c.s3.Password, "AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=",
	}
	c.server = serveIn(c.t, c.dir, nil, env, "serve", "--lease", "4s", "--nats-listen", nats, "--policy", "hadare",
		"--policy-option", "round=3s", "--policy-option", "restart=100ms", "--store", "s3://checkpoints?endpoint="+c.door.url)
}

// worker starts a worker without store credentials.
func (c *forkCluster) worker(name string) {
	c.t.Helper()
	c.workers[name] = start(c.t, c.dir, "worker", "--nats", "nats://"+c.cable.addr, "--keys", c.Info.Keys, "--name", name,
		"--devices", name+":1", "--dir", filepath.Join(c.dir, "worker-"+name))
}

// trial returns the only trial, or an empty one if the server cannot be reached now.
func (c *forkCluster) trial() *outbidv1.Trial {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := c.GetTrial(ctx, &outbidv1.GetTrialRequest{Sweep: c.id})
	if err != nil {
		return &outbidv1.Trial{}
	}
	return r.GetTrial()
}

// stopStore is one of the faults that occur while a request waits at the door.

func (c *forkCluster) stopStore() {
	c.s3.Stop(c.t)
	c.door.letIn()
	poll(c.t, "the store to be missed", func() bool { return c.door.refused.Load() > 2 })
	c.s3.Start(c.t)
}

func (c *forkCluster) killOrchestrator() {
	nats := strings.TrimPrefix(c.Info.NATS, "nats://")
	c.proc.kill()
	c.serve(nats)
	c.door.letIn()
}

// killWorker kills the worker that averages, or else a training one.
func (c *forkCluster) killWorker() {
	name := c.trial().GetRound().GetConsolidatesOn()
	if name == "" {
		name = "slow"
	}
	c.workers[name].kill()
	c.door.letIn()
}

func (c *forkCluster) cutNetwork() {
	c.cable.cut()
	poll(c.t, "the workers to be missed", func() bool {
		lost := 0
		for _, n := range c.nodes() {
			if n.GetState() == outbidv1.NodeState_NODE_STATE_LOST {
				lost++
			}
		}
		return lost == 2
	})
	c.door.letIn()
	c.cable.mend()
}

// check fails unless every step counted once, and the steps of each fork slot add up to where the trial continued. It
// returns how many fork slots were averaged.
func (c *forkCluster) check() (averaged int) {
	c.t.Helper()
	sw, trial := c.mustDone(c.id), c.trial()
	if trial.GetStep() != forkSteps || sw.GetSteps() != forkSteps || trial.GetRestarts() != 0 || trial.GetRound() != nil {
		c.t.Errorf("it is at step %d, %d were done, %d restarts; notes: %v", trial.GetStep(), sw.GetSteps(), trial.GetRestarts(), sw.GetNotes())
	}
	last := int64(0)
	for _, m := range trial.GetMerges() {
		if m.GetFromStep() < last {
			c.t.Errorf("a round from step %d follows one that ended at %d: %v", m.GetFromStep(), last, m)
		}
		last = m.GetFromStep()
		for _, f := range m.GetForks() {
			last += f.GetCounted()
		}
		if last != m.GetStep() {
			c.t.Errorf("fork slot %d adds up to step %d, but the trial continued at %d: %v", m.GetRound(), last, m.GetStep(), m)
		}
		if m.GetAveragedOn() != "" {
			averaged++
		}
	}
	return averaged
}

// checkKept fails unless checkpoints of a fork slot that were stored before a fault count.
func (c *forkCluster) checkKept(before *outbidv1.TrialRound) {
	c.t.Helper()
	merges := c.trial().GetMerges()
	if len(merges) == 0 || merges[0].GetRound() != 1 || len(merges[0].GetForks()) < len(before.GetForks()) {
		c.t.Fatalf("of the round %v there is left %v", before, merges)
	}
	after := merges[0]
	for i, f := range before.GetForks() {
		if got := after.GetForks()[i].GetCounted(); got < f.GetCounted() {
			c.t.Errorf("fork %d had saved %d steps, and %d count: %v", i, f.GetCounted(), got, after)
		}
	}
}

// TestForksOutliveFaults checks that after any failure during the upload or the average of forks, the trial continues
// from the stored checkpoints: no step counts twice, and no acknowledged step is lost.
func TestForksOutliveFaults(t *testing.T) {
	t.Parallel()
	all := os.Getenv("OUTBID_FORK_FAULTS") == "all"
	for name, tc := range map[string]struct {
		method string
		fault  func(*forkCluster)
		often  bool
	}{
		"the store stops in mid-upload":                         {http.MethodPut, (*forkCluster).stopStore, true},
		"a worker is killed in mid-upload":                      {http.MethodPut, (*forkCluster).killWorker, false},
		"the orchestrator is killed in mid-upload":              {http.MethodPut, (*forkCluster).killOrchestrator, false},
		"the store stops in mid-consolidation":                  {http.MethodGet, (*forkCluster).stopStore, true},
		"the consolidating worker is killed":                    {http.MethodGet, (*forkCluster).killWorker, true},
		"the orchestrator is killed in mid-consolidation":       {http.MethodGet, (*forkCluster).killOrchestrator, true},
		"the network is cut between rounds, beyond a lease":     {http.MethodGet, (*forkCluster).cutNetwork, false},
		"the network is cut while forks upload, beyond a lease": {http.MethodPut, (*forkCluster).cutNetwork, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !tc.often && !all {
				t.Skip("OUTBID_FORK_FAULTS=all runs it")
			}
			c := newForkCluster(t, tc.method, "fast", "slow")
			select {
			case <-c.door.held:
			case <-time.After(patience):
				t.Fatalf("no request reached the door: %v", c.trial())
			}
			before := c.trial()
			if averaging := before.GetRound().GetConsolidatesOn() != ""; averaging != (tc.method == http.MethodGet) {
				t.Fatalf("it comes at another moment: %v", before.GetRound())
			}
			tc.fault(c)
			if averaged := c.check(); averaged == 0 && tc.method == http.MethodGet {
				t.Errorf("nothing was averaged: %v", c.trial().GetMerges())
			}
			c.checkKept(before.GetRound())
		})
	}
}

// TestATrialThatBeganAloneIsForkedWhenANodeComes checks that a trial that started alone on the only node is forked at
// the next slot after another node has joined.
func TestATrialThatBeganAloneIsForkedWhenANodeComes(t *testing.T) {
	t.Parallel()
	c := newForkCluster(t, "", "slow")
	c.waitSteps(c.id, 10)
	if trial := c.trial(); trial.GetRound() != nil || trial.GetNode() != "slow" {
		t.Fatalf("with one node it is trained by %v", trial)
	}
	c.worker("fast")
	poll(t, "its forks", func() bool { return len(c.trial().GetRound().GetForks()) == 2 })
	if err := os.Remove(c.hold); err != nil {
		t.Fatal(err)
	}
	if averaged := c.check(); averaged == 0 {
		t.Errorf("nothing was averaged: %v", c.trial().GetMerges())
	}
}
