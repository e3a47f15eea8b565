package endtoend

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/history"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	tuners "github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker"
	"github.com/outbid-dev/outbid/worker/inventory"
	"github.com/outbid-dev/outbid/worker/session/sessiontest"
)

// stub is the training process of the benchmarks. It uses the real session protocol over the real socket. The
// environment configures it.
func stub(mode string) int {
	ctx := context.Background()
	interval, err := time.ParseDuration(os.Getenv("STUB_INTERVAL"))
	if err != nil {
		interval = 0
	}
	reports, err := strconv.ParseUint(os.Getenv("STUB_REPORTS"), 10, 64)
	if err != nil {
		reports = 1
	}
	var train func(*sessiontest.Trial) error
	switch mode {
	case "latency":
		train = func(t *sessiontest.Trial) error { return measure(t, reports, interval, untilAcknowledged) }
	case "decision":
		train = func(t *sessiontest.Trial) error { return measure(t, reports, interval, untilDecided) }
	case "flood":
		train = func(t *sessiontest.Trial) error { return flood(t, reports) }
	default:
		train = func(t *sessiontest.Trial) error { return t.Report(1, map[string]float64{"loss": 1}) }
	}
	if err := sessiontest.Run(ctx, train); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// warmUp is how many reports of each process are not counted, because two cores are busy while a hundred processes
// start.
const warmUp = 25

// untilAcknowledged waits until a report is in the ledger.
func untilAcknowledged(t *sessiontest.Trial, seq uint64) error {
	for t.Acked < seq {
		if _, err := t.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// untilDecided waits until the tuner has decided on a trial that reached its target.
func untilDecided(t *sessiontest.Trial, seq uint64) error { return t.Reached(int64(seq)) }

// measure reports at a constant rate, and records how long each report waited.
func measure(t *sessiontest.Trial, reports uint64, interval time.Duration, wait func(*sessiontest.Trial, uint64) error) error {
	var taken []string
	// Processes take turns: if a hundred woke at the same moment, the benchmark would measure the queue for two cores.
	turn := interval * time.Duration(t.GetFork().GetTrial()%100) / 100
	next := time.Now().Truncate(interval).Add(turn)
	for seq := uint64(1); seq <= reports; seq++ {
		next = next.Add(interval)
		<-time.After(time.Until(next))
		began := time.Now()
		if err := t.Report(int64(seq), map[string]float64{"loss": 1 / float64(seq)}); err != nil {
			return err
		}
		if err := wait(t, seq); err != nil && !errors.Is(err, sessiontest.ErrEnded) {
			return err
		}
		if seq > warmUp {
			taken = append(taken, fmt.Sprint(began.UnixMicro(), time.Since(began).Microseconds()))
		}
	}
	name := filepath.Join(os.Getenv("STUB_OUT"), fmt.Sprintf("%d", t.GetFork().GetTrial()))
	return os.WriteFile(name, []byte(strings.Join(taken, "\n")), 0o600)
}

// flood reports as fast as possible, with at most 400 reports in flight.
func flood(t *sessiontest.Trial, reports uint64) error {
	for seq := uint64(1); seq <= reports; seq++ {
		if err := t.Report(int64(seq), map[string]float64{"loss": 1 / float64(seq)}); err != nil {
			return err
		}
		for seq == reports && t.Acked < seq || seq-t.Acked >= 400 {
			if _, err := t.Wait(); err != nil {
				return err
			}
		}
	}
	return nil
}

// site is a server and a worker in this process: embedded NATS that syncs before it acknowledges, ledger, loop, and
// training processes on real sockets.
type site struct {
	*control.Loop
	blob string

	mu sync.Mutex
	// decide and store have the durations of the loop's decisions and appends, in milliseconds, and ended the ends of
	// the steps.
	decide, store []float64
	ended         []time.Time
}

// observe records a step.
func (s *site) observe(o control.Observation) {
	if o.Reports == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decide = append(s.decide, o.Decide.Seconds()*1000)
	s.store = append(s.store, o.Append.Seconds()*1000)
	s.ended = append(s.ended, time.Now())
}

// quantile of values in any order.
func quantile(values []float64, q float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[int(q*float64(len(values)-1))]
}

// opens starts a sweep's tuner, or restores one from a snapshot.
type opens = func(s tuner.Settings, snapshot []byte) (tuner.Tuner, error)

// openBuiltIn is opens for tuners of the binary.
func openBuiltIn(s tuner.Settings, snapshot []byte) (tuner.Tuner, error) {
	if snapshot != nil {
		return tuners.Restore(s, snapshot)
	}
	return tuners.New(s)
}

func newSite(b *testing.B, devices int, open opens) *site {
	b.Helper()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(300) // like outbid's servers and workers
	}
	dir := b.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	keys, err := identity.MakeKeys(filepath.Join(dir, "keys"))
	must(err)
	ns, err := bus.StartServer(bus.ServerConfig{Dir: filepath.Join(dir, "nats"), Keys: keys})
	must(err)
	admin, err := keys.Orchestrator()
	must(err)
	nc, err := bus.Connect(ctx, bus.ConnConfig{Server: ns, User: admin, Name: "orchestrator"})
	must(err)
	who, err := keys.Worker("bench", time.Now())
	must(err)
	list, err := bus.OpenWorkers(ctx, nc, bus.WorkersConfig{})
	must(err)
	must(list.Add(ctx, "bench", who.Public(), time.Now()))
	orders, err := identity.NewVerifier(who.OrdersKey)
	must(err)
	far, err := bus.Connect(ctx, bus.ConnConfig{URL: ns.URL(), User: who, Name: "worker"})
	must(err)
	store, err := objects.Open(ctx, filepath.Join(dir, "store"))
	must(err)
	record, err := ledger.OpenJetStream(ctx, nc, ledger.Config{})
	must(err)
	past, err := history.Open(filepath.Join(dir, "history"))
	must(err)
	logs, err := bus.OpenLogs(ctx, nc, bus.LogsConfig{})
	must(err)
	policy, err := registry.Product().New(registry.Default, nil)
	must(err)
	own := new(site)
	loop, err := control.Open(ctx, control.Config{
		Observe: own.observe,
		Settings: control.Settings{
			Lease:    15 * time.Second,
			Trust:    func(node string) bool { return list.Key(node) != "" },
			Sign:     func(blob string) []byte { return keys.Orders().SignFunction(blob) },
			NewTuner: open,
		},
		Policy: policy, Ledger: record, History: past, Now: time.Now, Logger: log, Delete: store.Delete,
		Send: func(o *outbidv1.Orders) error { return bus.PublishOrders(nc, o, keys.Orders()) },
		Info: func() *outbidv1.GetServerInfoResponse { return &outbidv1.GetServerInfoResponse{} },
	})
	must(err)
	sub, err := bus.SubscribeUplinks(nc, list.Check, loop.Uplink)
	must(err)
	self, err := os.Executable()
	must(err)
	machine := inventory.Machine{}
	for i := range devices {
		machine.Devices = append(machine.Devices, &outbidv1.Device{Index: int32(i), Type: "cpu"})
	}
	ended := make(chan error, 2)
	go func() { ended <- loop.Run(ctx) }()
	workCtx, stopWork := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() {
		worked <- worker.Run(workCtx, worker.Config{
			Node: "bench", Machine: machine, Store: worker.Direct(store), Server: orders,
			Bus: worker.NATS(worker.Link{NC: far, Logs: logs, Who: who, Check: orders.Message}),
			Dir: filepath.Join(dir, "worker"), FunctionCommand: []string{self}, Logger: log,
		})
	}()
	b.Cleanup(func() {
		stopWork()
		if err := <-worked; err != nil {
			b.Error(err)
		}
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
		_ = sub.Stop()
		_ = logs.Close()
		far.Close()
		nc.Close()
		_ = ns.Close()
	})
	blob := []byte("no function: the stub takes its place")
	sum := sha256.Sum256(blob)
	name := hex.EncodeToString(sum[:])
	must(store.Put(ctx, "blobs/"+name, bytes.NewReader(blob), int64(len(blob))))
	own.Loop, own.blob = loop, name
	return own
}

// run submits a sweep of stubs and waits until it is done.
func (s *site) run(b *testing.B, trials int, env map[string]string) {
	b.Helper()
	s.runUnder(b, random(0), trials, env)
}

// runUnder is run with a tuner.
func (s *site) runUnder(b *testing.B, with *outbidv1.Tuner, trials int, env map[string]string) {
	b.Helper()
	spec := job{name: "bench", tuner: with, trials: int32(trials)}.bare()
	spec.Workload = &outbidv1.SweepSpec_Function{Function: &outbidv1.Function{Blob: s.blob, Name: "stub", Env: env}}
	id, err := s.Submit(context.Background(), spec, "bench", "")
	if err != nil {
		b.Fatal(err)
	}
	for {
		_, _, next, err := s.Changes(id, 1<<64-1)
		if err != nil {
			b.Fatal(err)
		}
		sweep, err := s.Sweep(id)
		if err != nil {
			b.Fatal(err)
		}
		if sweep.GetState() == outbidv1.SweepState_SWEEP_STATE_DONE {
			return
		}
		if sweep.GetState() > outbidv1.SweepState_SWEEP_STATE_DONE || sweep.GetCounts().GetFailed() > 0 {
			b.Fatalf("the sweep is %s: %s; %v", sweep.GetState(), sweep.GetReason(), sweep.GetNotes())
		}
		<-next
	}
}

// BenchmarkReportLatency measures how long a report takes from the training process until the process learns the
// decision: through the session's gRPC socket, NATS and the synced ledger, at 500 reports per second from 100
// processes.
func BenchmarkReportLatency(b *testing.B) {
	s := newSite(b, 100, openBuiltIn)
	out := b.TempDir()
	for b.Loop() {
		s.run(b, 100, map[string]string{
			"STUB_MODE": "latency", "STUB_INTERVAL": "200ms", "STUB_REPORTS": "125", "STUB_OUT": out,
		})
	}
	latencies(b, out)
	s.mu.Lock()
	defer s.mu.Unlock()
	b.ReportMetric(quantile(s.decide, .99), "ms-p99-decide")
	b.ReportMetric(quantile(s.store, .99), "ms-p99-append")
}

// latencies reports the durations that processes recorded in a directory.
func latencies(b *testing.B, out string) {
	b.Helper()
	var taken []float64
	for _, of := range reported(b, out) {
		for _, r := range of {
			taken = append(taken, r.took)
		}
	}
	for _, q := range []float64{.5, .95, .99, 1} {
		b.ReportMetric(quantile(taken, q), fmt.Sprintf("ms-p%g", q*100))
	}
}

// BenchmarkReportThroughput measures how many reports per second pass the same way as fast as possible, from 100
// processes that wait for the decisions.
func BenchmarkReportThroughput(b *testing.B) {
	s := newSite(b, 100, openBuiltIn)
	const each = 6000
	began := time.Now()
	for b.Loop() {
		s.run(b, 100, map[string]string{"STUB_MODE": "flood", "STUB_REPORTS": strconv.Itoa(each)})
	}
	b.ReportMetric(float64(100*each*b.N)/time.Since(began).Seconds(), "reports/s")
}

// BenchmarkTrials measures how many one-report trials per second are created, placed, run in a warm process and ended.
func BenchmarkTrials(b *testing.B) {
	s := newSite(b, 16, openBuiltIn)
	const trials = 10_000
	began := time.Now()
	for b.Loop() {
		s.run(b, trials, map[string]string{"STUB_MODE": "once"})
	}
	b.ReportMetric(float64(trials*b.N)/time.Since(began).Seconds(), "trials/s")
}
