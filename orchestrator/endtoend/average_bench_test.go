package endtoend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/sim/study"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker"
	"github.com/outbid-dev/outbid/worker/confine"
)

// averagesAtOnce are ten consolidations, each of five checkpoints of so many bytes.
const averagesAtOnce, averagedFiles, averagedBytes = 10, 5, 16 << 20

// Where averages and copies are made beside BenchmarkLatencyBesideAverages: on all CPUs or those of a list such as "1" or "1,3", and of files in
// a directory of their own. With the benchmark itself on other CPUs (taskset) they are as on another machine.
const averagesOn, averagesIn = "OUTBID_AVERAGES_CPUS", "OUTBID_AVERAGES_DIR"

// pace is what was measured in one turn: 99th percentiles in milliseconds.
type pace struct {
	report, step, decide, store float64
}

// kinds are what a turn measures, by name: a report from its process until that hears of the decision, a step of the loop,
// and the two parts of a step.
var kinds = []struct { //nolint:gochecknoglobals // a table
	name string
	of   func(pace) float64
}{
	{"report", func(p pace) float64 { return p.report }},
	{"step", func(p pace) float64 { return p.step }},
	{"decide", func(p pace) float64 { return p.decide }},
	{"append", func(p pace) float64 { return p.store }},
}

// besides are what runs beside the reports of a turn: nothing, averages, or as much work that has nothing to do with Outbid.
var besides = []string{"alone", "averages", "copies"} //nolint:gochecknoglobals // a table

// BenchmarkLatencyBesideAverages is BenchmarkReportLatency at 400 reports a second, in turns alone, while ten times five
// checkpoints are to be averaged at once, again and again, by workers of the orchestrator's own process, as under `outbid up`, and while
// a plain program copies as many bytes as often, which tells what averages cost from what any work in their place does. Which comes first rotates.
func BenchmarkLatencyBesideAverages(b *testing.B) {
	s := newSite(b, 100)
	turn := func() pace {
		out := b.TempDir()
		s.run(b, 100, map[string]string{"STUB_MODE": "latency", "STUB_INTERVAL": "250ms", "STUB_REPORTS": "65", "STUB_OUT": out})
		p := s.took(.99)
		p.report = quantile(latencies(b, out), .99)
		return p
	}
	paces := map[string][]pace{}
	made, perSecond := 0, 14.0 // until it was measured
	for round := 0; b.Loop(); round++ {
		for i := range besides {
			beside, stop := besides[(round+i)%len(besides)], func() int { return 0 }
			switch beside {
			case "averages":
				stop = startAverages(b)
			case "copies":
				stop = startCopies(b, perSecond)
			}
			began := time.Now()
			paces[beside] = append(paces[beside], turn())
			if n := stop(); beside == "averages" {
				made += n
				perSecond = float64(n) / time.Since(began).Seconds()
			}
		}
	}
	for _, k := range kinds { // two lines each: of a benchmark only ten are shown
		all := map[string][]float64{}
		for _, beside := range besides {
			for _, p := range paces[beside] {
				all[beside] = append(all[beside], k.of(p))
			}
			b.ReportMetric(quantile(all[beside], .5), "ms-p99-"+k.name+"-"+beside)
		}
		b.Logf("%s, p99 in ms: alone %.2f, averages %.2f, copies %.2f", k.name, all["alone"], all["averages"], all["copies"])
		more := func(with, without string) study.Interval {
			var more []float64
			for i, v := range all[with] {
				more = append(more, v-all[without][i])
			}
			return study.Of(more)
		}
		b.Logf("%s, mean of rounds, 95 %%: averages less alone %s, copies less alone %s, averages less copies %s",
			k.name, more("averages", "alone"), more("copies", "alone"), more("averages", "copies"))
	}
	b.ReportMetric(float64(made)/float64(b.N), "averages")
}

// took is how long the loop's steps took since this was last asked.
func (s *site) took(q float64) (p pace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var whole []float64
	for i, d := range s.decide {
		whole = append(whole, d+s.store[i])
	}
	p.step, p.decide, p.store = quantile(whole, q), quantile(s.decide, q), quantile(s.store, q)
	s.decide, s.store = nil, nil
	return p
}

// toAveragesCPUs keeps this process to the CPUs that averagesOn lists, if it is one that averages or copies.
func toAveragesCPUs() error {
	cpus := os.Getenv(averagesOn)
	if cpus == "" || os.Args[0] != "outbid-average" && os.Getenv(copiesOf) == "" { // the former as worker.AverageMain has it
		return nil
	}
	out, err := exec.Command("taskset", "--all-tasks", "--pid", "--cpu-list", cpus, strconv.Itoa(os.Getpid())).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s=%s: %w: %s", averagesOn, cpus, err, out)
	}
	return nil
}

// averagesDir is a new directory where averagesIn says.
func averagesDir(b *testing.B) string {
	b.Helper()
	in := os.Getenv(averagesIn)
	if in == "" {
		return b.TempDir()
	}
	dir, err := os.MkdirTemp(in, "averages-") //nolint:usetesting // on which disk it is matters
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// startAverages averages until stop is called, which says how many averages were made.
func startAverages(b *testing.B) (stop func() int) {
	b.Helper()
	dir := averagesDir(b)
	store, err := objects.Open(b.Context(), dir)
	if err != nil {
		b.Fatal(err)
	}
	sources := forkCheckpoints(b, store)
	c, err := confine.Open(b.Context(), confine.Config{Dir: b.TempDir()}) // as the worker of trials does
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var g errgroup.Group
	var made atomic.Int64
	for k := range averagesAtOnce {
		o := &outbidv1.Consolidation{Step: 900, Key: fmt.Sprintf("checkpoints/s-1/%d/000000000900-7.safetensors", k), Sources: sources}
		g.Go(func() error {
			for {
				switch _, err := worker.Consolidate(ctx, c.IdleGroup(), store, o); {
				case ctx.Err() != nil:
					return nil //nolint:nilerr // the end that was asked for
				case err != nil:
					return err
				}
				made.Add(1)
			}
		})
	}
	return func() int {
		cancel()
		if err := g.Wait(); err != nil || made.Load() == 0 {
			b.Fatalf("%d averages were made beside: %v", made.Load(), err)
		}
		if err := errors.Join(c.Close(), os.RemoveAll(dir)); err != nil {
			b.Error(err)
		}
		return int(made.Load())
	}
}

// forkCheckpoints stores five checkpoints.
func forkCheckpoints(b *testing.B, store objects.Store) (sources []*outbidv1.ConsolidationSource) {
	b.Helper()
	h := safetensors.Header{Tensors: []safetensors.Tensor{{Name: "w", DType: safetensors.F32, Shape: []int64{averagedBytes / 4}, End: averagedBytes}}}
	head, err := h.Encode()
	if err != nil {
		b.Fatal(err)
	}
	data := append(head, make([]byte, averagedBytes)...)
	hash := checksum.New()
	_, _ = hash.Write(data)
	sums := hash.Sums()
	for i := range averagedFiles {
		ck := &outbidv1.Checkpoint{
			Key: fmt.Sprintf("checkpoints/s-1/0/000000000100-%d.safetensors", i), Bytes: int64(len(data)), Sha256: sums.SHA256,
			Crc64Nvme: sums.CRC64,
		}
		if err := store.Put(b.Context(), ck.GetKey(), bytes.NewReader(data), ck.GetBytes()); err != nil {
			b.Fatal(err)
		}
		sources = append(sources, &outbidv1.ConsolidationSource{Checkpoint: ck, Steps: int64(i + 1)})
	}
	return sources
}

// latencies are what stubs measured, in milliseconds.
func latencies(b *testing.B, dir string) (taken []float64) {
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
		for _, line := range strings.Fields(string(data)) {
			us, err := strconv.ParseFloat(line, 64)
			if err != nil {
				b.Fatal(err)
			}
			taken = append(taken, us/1000)
		}
	}
	return taken
}
