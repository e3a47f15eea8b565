package endtoend

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// number returns a number from the environment, for tests that also run at other sizes.
func number(t testing.TB, name string, usual int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// client asks an external sweep for trials and reports their steps.
type client struct {
	*server
	sweep string
}

// external starts an external sweep.
func (s *server) external(name string, trials int) client {
	s.t.Helper()
	spec := job{name: name, tuner: random(0), trials: int32(trials)}.bare()
	spec.Workload = &outbidv1.SweepSpec_External{External: &outbidv1.External{}}
	return client{server: s, sweep: s.submit(spec)}
}

// tellReports reports the given number of steps of one trial, in messages of each steps.
func (c client) tellReports(reports, each int) error {
	ctx := context.Background()
	asked, err := c.AskTrial(ctx, &outbidv1.AskTrialRequest{Sweep: c.sweep, Client: "test"})
	if err != nil {
		return err
	}
	trial, leaseID := asked.GetTrial().GetNumber(), asked.GetLeaseId()
	for step := 0; step < reports; {
		tell := &outbidv1.TellTrialRequest{Sweep: c.sweep, Trial: trial, LeaseId: leaseID}
		for range min(each, reports-step) {
			step++
			tell.Reports = append(tell.Reports, &outbidv1.Report{
				Step: int64(step), Metrics: map[string]float64{"loss": 1 / float64(step), "accuracy": 1 - 1/float64(step)},
			})
		}
		if _, err := c.TellTrial(ctx, tell); err != nil {
			return err
		}
	}
	return nil
}

// fillClients is how many clients report concurrently when a ledger is filled.
const fillClients = 16

// fill writes reports to the ledger from several clients concurrently, in messages of each steps.
func (s *server) fill(name string, reports, each int) string {
	s.t.Helper()
	c := s.external(name, fillClients)
	var wg sync.WaitGroup
	for range fillClients {
		wg.Go(func() {
			if err := c.tellReports(reports/fillClients, each); err != nil {
				s.t.Error(err)
			}
		})
	}
	wg.Wait()
	return c.sweep
}

var restored = regexp.MustCompile(`state restored.* ledger=(\d+) batches_after_snapshot=(\d+) events=(\d+)`)

// restoredFrom returns the server's log of its start: the last batch of its ledger, and how much of it was read.
func (s *server) restoredFrom() (ledger, batches, events int) {
	s.t.Helper()
	var m []string
	poll(s.t, "what it restored", func() bool { // the output may arrive after the ready file
		text, _ := s.out.text()
		m = restored.FindStringSubmatch(text)
		return m != nil
	})
	var n [3]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1])
	}
	return n[0], n[1], n[2]
}

// TestARestartReadsOnlyTheTailOfTheLedger also measures how long a restart takes with a long history:
//
//	OUTBID_RESTART_REPORTS=10000000 OUTBID_RESTART_EACH=1 OUTBID_RESTART_DIR=/var/tmp/long go test ./orchestrator/endtoend -v -timeout 2h \
//	    -run TestARestartReadsOnlyTheTailOfTheLedger
//
// If the directory is given, it is kept, and an existing ledger in it is reused.
func TestARestartReadsOnlyTheTailOfTheLedger(t *testing.T) {
	t.Parallel()
	const snapshotEvery, slack = 50_000, 20_000 // a snapshot that is being written when the server is killed is lost
	reports, each := number(t, "OUTBID_RESTART_REPORTS", 150_000), number(t, "OUTBID_RESTART_EACH", 1000)
	dir := os.Getenv("OUTBID_RESTART_DIR")
	if dir == "" {
		dir = t.TempDir()
	}
	args := []string{"serve", "--nats-listen", "127.0.0.1:0", "--store", filepath.Join(dir, "store")}
	id := "many-1"
	var s *server
	restart := func(how string) {
		began := time.Now()
		s = serve(t, dir, args...)
		took := time.Since(began)
		ledger, batches, events := s.restoredFrom()
		t.Logf("%s: ready after %s; read %d batches of %d, with %d events", how, took.Round(time.Millisecond), batches, ledger, events)
		if text, _ := s.out.text(); strings.Contains(text, "rebuilding") || events > snapshotEvery+slack {
			t.Errorf("%s: it read %d events of %d reports:\n%s", how, events, reports, text)
		}
		if steps := s.sweep(id).GetSteps(); steps < int64(reports/fillClients*fillClients) {
			t.Errorf("%s: %d steps, want %d", how, steps, reports)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
		restart("as it was left")
	} else if reports > 1_000_000 {
		id = fillFast(t, dir, reports, each, ledger.Config{})
		restart("first")
	} else {
		s = serve(t, dir, args...)
		id = s.fill("many", reports, each)
	}
	s.kill()
	restart("after kill -9")
	s.fill("more", 20_000, each)
	s.kill()
	restart("after kill -9 with a tail")
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-s.ended
	restart("after SIGTERM")
	if _, batches, _ := s.restoredFrom(); batches > 1 {
		t.Errorf("it read %d batches after it had ended in order", batches)
	}
	if n, err := s.countReports(id); n != reports/fillClients*fillClients {
		t.Errorf("there are %d reports, want %d: %v", n, reports, err)
	}
}

// countReports reads all reports of a sweep. The error is how that ended.
func (s *server) countReports(sweep string) (n int, err error) {
	stream, err := s.ListReports(s.t.Context(), &outbidv1.ListReportsRequest{Sweep: sweep})
	for err == nil {
		var piece *outbidv1.ListReportsResponse
		if piece, err = stream.Recv(); err == nil {
			n += len(piece.GetReports())
		}
	}
	return n, err
}

// TestALedgerOfManyStreams starts a server on a ledger that spans ten streams, kills it, restarts it, and exports the
// ledger.
func TestALedgerOfManyStreams(t *testing.T) {
	t.Parallel()
	const reports = 1000*fillClients + 10_000
	dir := t.TempDir()
	id := fillFast(t, dir, reports, 2, ledger.Config{SegmentBatches: 500})
	args := []string{"serve", "--nats-listen", "127.0.0.1:0", "--store", filepath.Join(dir, "store")}
	last := 0
	for range 2 {
		s := serve(t, dir, args...)
		if n, err := s.countReports(id); n != reports {
			t.Errorf("there are %d reports, want %d: %v", n, reports, err)
		}
		before := last
		if last, _, _ = s.restoredFrom(); last < 5000 || last <= before {
			t.Errorf("the ledger has %d batches, after %d", last, before)
		}
		s.kill()
	}
	file := filepath.Join(dir, "ledger.jsonl")
	if text, code := tool(t, dir, "export", "--ledger", file, "--data", filepath.Join(dir, "data")); code != 0 {
		t.Fatalf("export: %d: %s", code, text)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), "\n"); n < last || n > last+100 {
		t.Errorf("%d batches were exported of %d", n, last)
	}
	streams, err := filepath.Glob(filepath.Join(dir, "data", "nats", "store", "jetstream", "*", "streams", "OUTBID_LEDGER*"))
	if err != nil || len(streams) < 10 {
		t.Errorf("streams %v: %v", streams, err)
	}
}
