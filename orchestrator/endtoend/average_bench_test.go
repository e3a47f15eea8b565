package endtoend

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
	"github.com/outbid-dev/outbid/orchestrator/checksum"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker"
	"github.com/outbid-dev/outbid/worker/confine"
)

// averagesAtOnce are ten consolidations, each of five checkpoints of so many bytes.
const averagesAtOnce, averagedBytes = 10, 16 << 20

// BenchmarkLatencyBesideAverages is BenchmarkReportLatency at 400 reports a second, in turns alone and while ten times five
// checkpoints are to be averaged at once, again and again, by workers of the orchestrator's own process, as under `outbid up`.
func BenchmarkLatencyBesideAverages(b *testing.B) {
	s := newSite(b, 100)
	env := func(out string) map[string]string {
		return map[string]string{"STUB_MODE": "latency", "STUB_INTERVAL": "250ms", "STUB_REPORTS": "65", "STUB_OUT": out}
	}
	turn := func() (report, stored float64) {
		out := b.TempDir()
		s.run(b, 100, env(out))
		return quantile(latencies(b, out), .99), s.appended(.99)
	}
	var alone, beside, storedAlone, storedBeside []float64
	made := 0
	for b.Loop() {
		report, stored := turn()
		alone, storedAlone = append(alone, report), append(storedAlone, stored)
		stop := startAverages(b)
		report, stored = turn()
		made += stop()
		beside, storedBeside = append(beside, report), append(storedBeside, stored)
		b.Logf("p99 alone %.1f ms, of which appending %.1f; beside averages %.1f ms, of which appending %.1f",
			alone[len(alone)-1], storedAlone[len(alone)-1], report, stored)
	}
	b.ReportMetric(quantile(alone, .5), "ms-p99-alone")
	b.ReportMetric(quantile(beside, .5), "ms-p99-beside")
	b.ReportMetric(quantile(storedAlone, .5), "ms-p99-append-alone")
	b.ReportMetric(quantile(storedBeside, .5), "ms-p99-append-beside")
	b.ReportMetric(float64(made)/float64(b.N), "averages")
}

// appended is how long appending took since this was last asked, in milliseconds.
func (s *site) appended(q float64) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.store
	s.decide, s.store = nil, nil
	return quantile(taken, q)
}

// startAverages averages until stop is called, which says how many averages were made.
func startAverages(b *testing.B) (stop func() int) {
	b.Helper()
	store, err := objects.Open(b.Context(), b.TempDir())
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
		if err := c.Close(); err != nil {
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
	for i := range 5 {
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
