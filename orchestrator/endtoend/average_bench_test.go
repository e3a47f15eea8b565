package endtoend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
	"github.com/outbid-dev/outbid/orchestrator/checksum"
	"github.com/outbid-dev/outbid/orchestrator/lab/study"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker"
	"github.com/outbid-dev/outbid/worker/confine"
)

// averagesAtOnce is ten averages, each of averagedFiles checkpoints.
const averagesAtOnce, averagedFiles = 10, 5

// averagedMiB is the variable for the size of each checkpoint in MiB; 16 by default.
const averagedMiB = "OUTBID_AVERAGE_MIB"

// averagedBytes returns the size of each checkpoint.
func averagedBytes() int64 {
	if mib, err := strconv.ParseInt(os.Getenv(averagedMiB), 10, 64); err == nil {
		return mib << 20
	}
	return 16 << 20
}

// These variables configure the averages of BenchmarkLatencyBesideAverages: CPUs, such as "1" or "1,3", and a directory
// for the files. With CPUs a worker in a separate process makes the averages. If the benchmark runs on other CPUs
// (taskset), that is like another machine.
const averagesOn, averagesIn = "OUTBID_AVERAGES_CPUS", "OUTBID_AVERAGES_DIR"

// averagesOf tells that worker the directory of the files.
const averagesOf = "AVERAGES_OF"

// pace has the measurements of one turn: quantiles in milliseconds, in the order of paceKinds.
type pace []float64

// paceKinds are the measurements of a turn while all processes report. A step of the loop lasts from receiving reports
// until their decisions are in the synced ledger; the append is the longer of its two parts. A report lasts from its
// process until that process learns the decision.
var paceKinds = []string{ //nolint:gochecknoglobals // a table
	"step-p50", "step-p99", "append-p99", "report-p50", "report-p99",
}

// besides are the loads during a turn: none, averages, or averages of the same files by a program without Outbid.
var besides = []string{"alone", "averages", "plain"} //nolint:gochecknoglobals // a table

// BenchmarkLatencyBesideAverages is BenchmarkReportLatency at 400 reports per second, with alternating loads: without
// load; while workers repeatedly make ten averages of five checkpoints at once, in the server's process, as under
// `outbid up`, or elsewhere (averagesOn); and while a plain program averages the same files as often. The last one
// separates the cost of Outbid's averages from that of any such work. The order rotates.
func BenchmarkLatencyBesideAverages(b *testing.B) {
	s := newSite(b, 100, openBuiltIn)
	turn := func() pace {
		out := b.TempDir()
		s.forget()
		s.run(b, 100, map[string]string{"STUB_MODE": "latency", "STUB_INTERVAL": "250ms", "STUB_REPORTS": "85", "STUB_OUT": out})
		return s.pace(b, reported(b, out))
	}
	paces := map[string][]pace{}
	made, perSecond := 0, 14.0 // until it was measured
	for round := 0; b.Loop(); round++ {
		for i := range besides {
			beside, stop := besides[(round+i)%len(besides)], func() int { return 0 }
			switch beside {
			case "averages":
				stop = startAverages(b)
			case "plain":
				stop = startPlain(b, perSecond)
			}
			began := time.Now()
			paces[beside] = append(paces[beside], turn())
			if n := stop(); beside == "averages" {
				made += n
				perSecond = float64(n) / time.Since(began).Seconds()
			}
		}
	}
	for k, kind := range paceKinds { // two lines each, because a benchmark prints at most ten
		all := map[string][]float64{}
		for _, beside := range besides {
			for _, p := range paces[beside] {
				all[beside] = append(all[beside], p[k])
			}
		}
		b.Logf("%s in ms: alone %.2f, averages %.2f, plain %.2f", kind, all["alone"], all["averages"], all["plain"])
		more := func(with, without string) study.Interval {
			var more []float64
			for i, v := range all[with] {
				more = append(more, v-all[without][i])
			}
			return study.Of(more)
		}
		b.Logf("%s, mean of rounds, 95 %%: averages less alone %s, plain less alone %s, averages less plain %s",
			kind, more("averages", "alone"), more("plain", "alone"), more("averages", "plain"))
	}
	b.ReportMetric(float64(made)/float64(b.N), "averages")
}

// forget restarts the measurement of steps.
func (s *site) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decide, s.store, s.ended = nil, nil, nil
}

// pace returns the durations of steps and reports while all processes reported. It excludes the time in which a hundred
// processes start or end, which is most of the work.
func (s *site) pace(b *testing.B, reports [][]reportTook) pace {
	b.Helper()
	first, last := time.Time{}, time.Now()
	for _, of := range reports {
		if at := of[0].at; at.After(first) {
			first = at
		}
		if at := of[len(of)-1].at; at.Before(last) {
			last = at
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var whole, store, took []float64
	for i, ended := range s.ended {
		if ended.After(first) && ended.Before(last) {
			whole, store = append(whole, s.decide[i]+s.store[i]), append(store, s.store[i])
		}
	}
	for _, of := range reports {
		for _, r := range of {
			if r.at.After(first) && r.at.Before(last) {
				took = append(took, r.took)
			}
		}
	}
	if len(took) < 1000 || len(whole) < 100 {
		b.Fatalf("all processes reported at once for %s only: %d reports, %d steps", last.Sub(first), len(took), len(whole))
	}
	return pace{quantile(whole, .5), quantile(whole, .99), quantile(store, .99), quantile(took, .5), quantile(took, .99)}
}

// toAveragesCPUs restricts this process to the CPUs of averagesOn if it makes averages.
func toAveragesCPUs() error {
	cpus := os.Getenv(averagesOn)
	if cpus == "" || os.Args[0] != "outbid-average" && os.Getenv(plainOf) == "" && os.Getenv(averagesOf) == "" { // worker.AverageMain sets the first
		return nil
	}
	out, err := exec.Command("taskset", "--all-tasks", "--pid", "--cpu-list", cpus, strconv.Itoa(os.Getpid())).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s=%s: %w: %s", averagesOn, cpus, err, out)
	}
	return nil
}

// averagesDir returns a new directory in averagesIn.
func averagesDir(b *testing.B) string {
	b.Helper()
	in := os.Getenv(averagesIn)
	if in == "" {
		return b.TempDir()
	}
	dir, err := os.MkdirTemp(in, "averages-") //nolint:usetesting // the disk matters
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// startAverages makes averages until stop is called, which returns their number.
func startAverages(b *testing.B) (stop func() int) {
	b.Helper()
	dir := averagesDir(b)
	ended := func(made int, err error) int {
		b.Helper()
		if err = errors.Join(err, os.RemoveAll(dir)); err != nil || made == 0 {
			b.Fatalf("%d averages were made beside: %v", made, err)
		}
		return made
	}
	if os.Getenv(averagesOn) != "" {
		stop := startElsewhere(b, dir)
		return func() int { return ended(stop()) }
	}
	ctx, cancel := context.WithCancel(b.Context())
	type made struct {
		n   int
		err error
	}
	done := make(chan made, 1)
	go func() {
		n, err := averageAgain(ctx, dir)
		done <- made{n, err}
	}()
	return func() int {
		cancel()
		m := <-done
		return ended(m.n, m.err)
	}
}

// startElsewhere starts a process that makes averages until it is stopped.
func startElsewhere(b *testing.B, dir string) (stop func() (int, error)) {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), averagesOf+"="+dir)
	var out bytes.Buffer
	cmd.Stdout = &out
	end, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return func() (int, error) {
		_ = end.Close()
		if err := cmd.Wait(); err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(out.String()))
	}
}

// averageElsewhere is that process: it makes averages until its standard input ends, and prints their number.
func averageElsewhere(dir string) int {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	made, err := averageAgain(ctx, dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(made)
	return 0
}

// averageAgain repeatedly makes averagesAtOnce averages concurrently until ctx ends, like workers.
func averageAgain(ctx context.Context, dir string) (_ int, err error) {
	store, err := objects.Open(ctx, dir)
	if err != nil {
		return 0, err
	}
	sources, err := forkCheckpoints(ctx, store)
	if err != nil {
		return 0, err
	}
	confined := filepath.Join(dir, "confined")
	if err := os.Mkdir(confined, 0o700); err != nil {
		return 0, err
	}
	c, err := confine.Open(ctx, confine.Config{Dir: confined}) // like a worker for trials
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	how := worker.Averaging{Behind: c.IdleGroup()}
	if os.Getenv(averagesOn) == "" {
		how.Rate = worker.AverageRateBeside // like outbid up
	}
	var g errgroup.Group
	var made atomic.Int64
	for k := range averagesAtOnce {
		o := &outbidv1.Consolidation{Step: 900, Key: fmt.Sprintf("checkpoints/s-1/%d/000000000900-7.safetensors", k), Sources: sources}
		g.Go(func() error {
			for {
				switch _, err := worker.Average(ctx, how, store, o); {
				case ctx.Err() != nil:
					return nil //nolint:nilerr // it ended as requested
				case err != nil:
					return err
				}
				made.Add(1)
			}
		})
	}
	err = g.Wait()
	return int(made.Load()), err
}

// forkCheckpoints stores five checkpoints.
func forkCheckpoints(ctx context.Context, store objects.Store) (sources []*outbidv1.ConsolidationSource, err error) {
	size := averagedBytes()
	h := safetensors.Header{Tensors: []safetensors.Tensor{{Name: "w", DType: safetensors.F32, Shape: []int64{size / 4}, End: size}}}
	head, err := h.Encode()
	if err != nil {
		return nil, err
	}
	whole := func() io.Reader { // not in memory at once, because it shares the memory of the server
		return io.MultiReader(bytes.NewReader(head), io.LimitReader(zeros{}, size))
	}
	hash := checksum.New()
	if _, err := io.Copy(hash, whole()); err != nil {
		return nil, err
	}
	sums := hash.Sums()
	for i := range averagedFiles {
		ck := &outbidv1.Checkpoint{
			Key: fmt.Sprintf("checkpoints/s-1/0/000000000100-%d.safetensors", i), Bytes: int64(len(head)) + size, Sha256: sums.SHA256,
			Crc64Nvme: sums.CRC64,
		}
		if err := store.Put(ctx, ck.GetKey(), whole(), ck.GetBytes()); err != nil {
			return nil, err
		}
		sources = append(sources, &outbidv1.ConsolidationSource{Checkpoint: ck, Steps: int64(i + 1)})
	}
	return sources, nil
}

// zeros is an endless reader of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// reportTook is a report of a stub.
type reportTook struct {
	at   time.Time
	took float64 // until the decision, in milliseconds
}

// reported returns the measurements of the stubs, each with its reports in order.
func reported(b *testing.B, dir string) (all [][]reportTook) {
	b.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			b.Fatal(err)
		}
		var of []reportTook
		for line := range strings.Lines(string(data)) {
			var at, took int64
			if _, err := fmt.Sscan(line, &at, &took); err != nil {
				b.Fatal(err)
			}
			of = append(of, reportTook{at: time.UnixMicro(at), took: float64(took) / 1000})
		}
		all = append(all, of)
	}
	return all
}
