package endtoend

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/objects/objectstest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// torment is a cluster of two servers, one of them a standby, three workers, a NATS server and S3, each in a
// separate process that is killed from time to time, while hostile inputs arrive. Another tenant trains all the time,
// and also reports from an external program.
type torment struct {
	t       *testing.T
	rng     *rand.Rand
	dir     string
	keys    string
	natsURL string
	s3      *objectstest.Versity
	procs   map[string]*proc
	starts  map[string]func() *proc
	// clients are the clients of the two servers.
	clients []outbidv1.OutbidServiceClient
	locks   string
	trainer string
	steps   int64    // of each trial of the healthy sweep
	bad     []string // sweeps of the hostile tenant
	did     map[string]int
	// lockTrials lets the healthy sweep's trials detect that another process runs the same trial.
	lockTrials bool
	wrong      sync.Map // answers that do not name the invalid input, by text
}

// TestHostileInputsAndKillsLoseNothing lasts for OUTBID_TORMENT; OUTBID_TORMENT_SEED determines the events.
func TestHostileInputsAndKillsLoseNothing(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root runs trials as other users, and their inputs hold others up otherwise")
	}
	lasts := 20 * time.Second
	if os.Getenv("CI") != "" {
		lasts = 2 * time.Minute
	}
	if text := os.Getenv("OUTBID_TORMENT"); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	seed := fromEnvironment(t, "OUTBID_TORMENT_SEED", rand.Uint64())
	t.Logf("OUTBID_TORMENT_SEED=%d", seed)
	m := newTorment(t, seed)
	healthy := m.healthy(lasts)
	told := m.tells("good")
	over := time.After(lasts)
	for running := true; running; {
		m.once()
		select {
		case <-over:
			running = false
		case <-time.After(time.Duration(m.rng.IntN(2000)) * time.Millisecond):
		}
	}
	t.Logf("what happened: %v", m.did)
	m.raiseAll()
	told.end()
	m.endBad()
	m.check(healthy, told)
}

func newTorment(t *testing.T, seed uint64) *torment {
	t.Helper()
	m := &torment{
		t: t, rng: rand.New(rand.NewPCG(seed, 31)), dir: t.TempDir(), s3: objectstest.StartVersity(t), procs: map[string]*proc{},
		starts: map[string]func() *proc{}, locks: openDir(t), trainer: trojan(t, openDir(t)), did: map[string]int{},
	}
	m.keys = filepath.Join(m.dir, "keys")
	keys, err := identity.MakeKeys(m.keys)
	if err != nil {
		t.Fatal(err)
	}
	auth, err := keys.NATSConfig()
	if err != nil {
		t.Fatal(err)
	}
	ports := freePorts(t, 3)
	m.natsURL = fmt.Sprintf("nats://127.0.0.1:%d", ports[0])
	conf := filepath.Join(m.dir, "nats.conf")
	text := fmt.Sprintf("listen: 127.0.0.1:%d\njetstream { store_dir: %q, sync_interval: always }\nmax_payload: 1MB\nmax_pending: 256MB\n%s",
		ports[0], filepath.Join(m.dir, "nats"), auth)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := natsServer(t)
	m.starts["nats"] = func() *proc { return startCommand(t, m.dir, binary, "--config", conf) }
	m.rise("nats")
	poll(t, "NATS", func() bool { return !portIsFree(ports[0]) })
	for i, port := range ports[1:] {
		m.addServer(fmt.Sprintf("server-%d", i+1), port)
	}
	for _, name := range []string{"worker-a", "worker-b"} {
		m.addWorker(name, nil)
	}
	small := filepath.Join(m.dir, "work-worker-small")
	if err := os.Mkdir(small, 0o700); err != nil {
		t.Fatal(err)
	}
	m.addWorker("worker-small", smallDisk(t, small, 64<<20), "--disk-margin", "8MiB")
	m.must("all nodes", func(ctx context.Context, c outbidv1.OutbidServiceClient) error {
		r, err := c.ListNodes(ctx, &outbidv1.ListNodesRequest{})
		if err == nil && len(r.GetNodes()) < 3 {
			err = fmt.Errorf("%d nodes", len(r.GetNodes()))
		}
		return err
	})
	return m
}

func (m *torment) rise(name string) { m.procs[name] = m.starts[name]() }

func (m *torment) addServer(name string, port int) {
	env := []string{
		"MINIO_ROOT_USER=" + m.s3.User, "MINIO_ROOT_PASSWORD=" + m.s3.Password, "AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=",
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	m.starts[name] = func() *proc {
		return startIn(m.t, m.dir, nil, env, "serve", "--nats", m.natsURL, "--standby", "--lease", "4s", "--keys", m.keys, "--policy", "drf",
			"--store", "s3://checkpoints/of/outbid?endpoint="+m.s3.Endpoint, "--data", filepath.Join(m.dir, name), "--api", address)
	}
	m.rise(name)
	m.clients = append(m.clients, m.procs[name].dial(address))
}

func (m *torment) addWorker(name string, wrapper []string, args ...string) {
	command := append([]string{
		"worker", "--nats", m.natsURL, "--keys", m.keys, "--name", name, "--devices", "cpu:2", "--dir", filepath.Join(m.dir, "work-"+name),
		"--trial-user", "auto", "--checkpoint-bytes", "64MiB", "--trial-processes", "300", // other tests run here as well
	}, args...)
	m.starts[name] = func() *proc { return startIn(m.t, m.dir, wrapper, nil, command...) }
	m.rise(name)
}

// once does one hostile thing, or kills something for up to three seconds.
func (m *torment) once() {
	if m.rng.IntN(5) < 2 {
		m.killSomething()
		return
	}
	inputs := hostileInputs()
	in := inputs[m.rng.IntN(len(inputs))]
	m.did[in.name]++
	ctx, cancel := context.WithTimeout(m.t.Context(), 10*time.Second)
	defer cancel()
	for _, c := range m.clients {
		err := in.send(ctx, m, c)
		switch code := status.Code(err); code {
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
			continue // the other one may lead
		case codes.Internal, codes.Unknown, codes.DataLoss:
			m.wrong.Store(in.name+": "+err.Error(), true)
		}
		return
	}
}

func (m *torment) killSomething() {
	what := []string{"nats", "s3", "server-1", "server-2", "worker-a", "worker-b", "worker-small", "disk"}[m.rng.IntN(8)]
	m.did["kill "+what]++
	pause := time.After(time.Duration(m.rng.IntN(3000)) * time.Millisecond)
	switch what {
	case "s3":
		m.s3.Stop(m.t)
		<-pause
		m.s3.Start(m.t)
	case "disk":
		filler := m.procs["worker-small"].inside(filepath.Join(m.dir, "work-worker-small", "filler"))
		_ = os.WriteFile(filler, make([]byte, 128<<20), 0o600) // it fills the disk
		<-pause
		_ = os.Remove(filler) // the process may be another by now
	default:
		m.procs[what].kill()
		<-pause
		m.rise(what)
	}
}

// raiseAll restarts processes that have ended.
func (m *torment) raiseAll() {
	for name, p := range m.procs {
		select {
		case <-p.ended:
			m.rise(name)
		default:
		}
	}
}

// must calls f until one of the servers succeeds.
func (m *torment) must(what string, f func(context.Context, outbidv1.OutbidServiceClient) error) {
	m.t.Helper()
	m.mustWithin(patience, what, f)
}

func (m *torment) mustWithin(patience time.Duration, what string, f func(context.Context, outbidv1.OutbidServiceClient) error) {
	m.t.Helper()
	deadline := time.Now().Add(patience)
	var last error
	for time.Now().Before(deadline) {
		m.raiseAll() // a server ends if its ledger is unavailable for long, and its operator restarts it
		for _, c := range m.clients {
			ctx, cancel := context.WithTimeout(m.t.Context(), 10*time.Second)
			err := f(ctx, c)
			cancel()
			if err == nil {
				return
			}
			last = err
		}
		<-time.After(100 * time.Millisecond)
	}
	m.t.Fatalf("timed out waiting for %s: %v", what, last)
}

// healthy submits the sweep of the tenant that is not hostile. Undisturbed, its trials train for half of the test's
// time.
func (m *torment) healthy(lasts time.Duration) string {
	const pace = 200 * time.Millisecond
	m.steps = max(20, int64(lasts/pace)/2)
	spec := job{name: "healthy", mode: "well", tuner: random(m.steps), trials: 2, env: map[string]string{"PACE": pace.String()}}.spec(m.t, m.locks)
	spec.GetProgram().Command = []string{m.trainer}
	if m.lockTrials {
		spec.GetProgram().Env["LOCK_TRIALS"] = "1"
	}
	spec.Tenant = "good"
	// A trial fails as the likely cause if more than max_restarts nodes in a row are lost while it runs there. Here
	// they are killed for other reasons, and not all of them know: worker-small loses its note with its disk, and the
	// kernel kills trials when memory runs out. The trial's own code never fails, which mustComplete checks.
	spec.MaxRestarts = new(int32(1000))
	return m.submit(spec)
}

func (m *torment) submit(spec *outbidv1.SweepSpec) (id string) {
	m.t.Helper()
	m.must("the submit of "+spec.GetName(), func(ctx context.Context, c outbidv1.OutbidServiceClient) error {
		r, err := c.SubmitSweep(ctx, &outbidv1.SubmitSweepRequest{Spec: spec})
		id = r.GetSweep().GetId()
		return err
	})
	return id
}

// endBad stops the sweeps of the hostile tenant.
func (m *torment) endBad() {
	for _, id := range m.bad {
		m.must("the end of "+id, func(ctx context.Context, c outbidv1.OutbidServiceClient) error {
			_, err := c.ControlSweep(ctx, &outbidv1.ControlSweepRequest{Sweep: id, Command: outbidv1.SweepCommand_SWEEP_COMMAND_STOP})
			if code := status.Code(err); code == codes.FailedPrecondition || code == codes.NotFound {
				return nil // it has ended, or was deleted
			}
			return err
		})
	}
}

// mark is in the environment of the hostile tenant's programs.
func (m *torment) mark() string { return "TORMENT=" + m.dir }
