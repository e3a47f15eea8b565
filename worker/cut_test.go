package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/proctable"
)

// proxy is a network that can be cut.
type proxy struct {
	listener net.Listener
	target   string
	pumps    sync.WaitGroup

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: strings.TrimPrefix(target, "nats://")}
	p.pumps.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.set(true)
		p.pumps.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		p.mu.Lock()
		if err != nil || p.cut {
			_ = in.Close()
			if err == nil {
				_ = out.Close()
			}
			p.mu.Unlock()
			continue
		}
		p.conns = append(p.conns, in, out)
		p.mu.Unlock()
		for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
			p.pumps.Go(func() {
				_, _ = io.Copy(pair[0], pair[1])
				_ = pair[0].Close()
			})
		}
	}
}

func (p *proxy) set(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	if cut {
		for _, c := range p.conns {
			_ = c.Close()
		}
		p.conns = nil
	}
}

func TestPartition(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := newProxy(t, s.server.URL())
	s.work(t, "nats://"+p.listener.Addr().String(), nil)
	o := s.orch
	o.with(func() { o.lease = 4 * time.Second })
	pidFile := filepath.Join(t.TempDir(), "pid")
	o.assign(script(1, `echo $$ > `+pidFile+`; echo '{"loss": 1}' >> $OUTBID_REPORT; while :; do sleep 0.1; done`, 0, 0))
	o.assign(function(2, "train", 3, 1))
	o.awaitText(t, 1, "report 1")
	o.awaitText(t, 2, "reached 3")
	p.set(true)
	// The forks end by themselves. The orchestrator learns that only once the network is restored.
	awaitExit(t, pidFile)
	p.set(false)
	o.awaitText(t, 1, "ended EXPIRED at 1")
	o.awaitText(t, 2, "ended EXPIRED at 3")
	o.with(func() { o.assignments = []*outbidv1.Assignment{function(3, "train", 1, 1)} })
	o.awaitText(t, 3, "reached 1")
}

// awaitExit waits for the end of the process whose pid is in a file.
func awaitExit(t *testing.T, pidFile string) {
	t.Helper()
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := proctable.Await(pid, time.Now().Add(patience)); err != nil {
		t.Fatalf("process %d: %v", pid, err)
	}
}

func TestDrainSaves(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	stop := s.work(t, "", nil)
	o := s.orch
	o.assign(script(1, `trap 'echo saved > $OUTBID_CHECKPOINT_OUT; exit 0' TERM
echo '{"loss": 1}' >> $OUTBID_REPORT; while :; do sleep 0.01; done`, 0, 0))
	o.assign(function(2, "train", 3, 1))
	o.awaitText(t, 1, "report 1")
	o.awaitText(t, 2, "reached 3")
	stop()
	o.await(t, "goodbye", func() bool { return o.leaving })
	o.awaitText(t, 1, "saved 1 ", "ended ORDERED at 1\n")
	o.awaitText(t, 2, "ended ORDERED at 3\n")
}

// workerForTest runs a worker in a separate process, which a test kills.
func workerForTest() {
	var env struct{ URL, Dir, Store, Keys string }
	if err := json.Unmarshal([]byte(os.Getenv("WORKER_TEST_URL")), &env); err != nil {
		panic(err)
	}
	keys, err := identity.OpenKeys(env.Keys)
	if err != nil {
		panic(err)
	}
	who, err := keys.Worker("n1", time.Now())
	if err != nil {
		panic(err)
	}
	nc, err := bus.Connect(context.Background(), bus.ConnConfig{URL: env.URL, User: who})
	if err != nil {
		panic(err)
	}
	logs, err := bus.AttachLogs(nc, nil)
	if err != nil {
		panic(err)
	}
	store, err := objects.OpenDir(env.Store)
	if err != nil {
		panic(err)
	}
	if err := Run(context.Background(), testConfig(env.Dir, link(who, nc, logs), store, keys)); err != nil {
		panic(err)
	}
}

func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dir := t.TempDir()
	env, err := json.Marshal(map[string]string{"URL": s.server.URL(), "Dir": dir, "Store": strings.TrimPrefix(s.store.String(), "file://"), "Keys": s.keys.Dir()})
	if err != nil {
		t.Fatal(err)
	}
	worker, err := os.StartProcess(os.Args[0], os.Args[:1], &os.ProcAttr{
		Env: append(os.Environ(), "WORKER_TEST_URL="+string(env)), Files: []*os.File{nil, os.Stdout, os.Stderr},
	})
	if err != nil {
		t.Fatal(err)
	}
	o := s.orch
	pids := filepath.Join(t.TempDir(), "pids")
	o.assign(script(1, `sleep 600 & echo $$ $! > `+pids+`; echo '{"loss": 1}' >> $OUTBID_REPORT; wait`, 0, 0))
	o.awaitText(t, 1, "report 1")
	if err := worker.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := worker.Wait(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	var leader, child int
	if _, err := fmt.Sscan(string(text), &leader, &child); err != nil {
		t.Fatal(err)
	}
	if !running(child) {
		t.Fatal("nothing was left behind, so there is nothing to test")
	}
	o.with(func() { o.assignments = nil })
	s.work(t, "", func(c *Config) { c.Dir = dir })
	o.await(t, "a new boot", func() bool { return o.boots == 2 })
	if running(leader) || running(child) {
		t.Error("processes of the killed worker still run")
	}
	o.assign(script(2, `echo '{"loss": 1}' >> $OUTBID_REPORT`, 0, 0))
	o.awaitText(t, 2, "ended FINISHED at 1")
}

// running reports whether a process runs; a zombie does not.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
