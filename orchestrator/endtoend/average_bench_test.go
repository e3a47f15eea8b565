package endtoend

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint"
	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
	"github.com/outbid-dev/outbid/orchestrator/objects"
)

// averagesAtOnce are ten consolidations, each of five checkpoints of so many bytes.
const averagesAtOnce, averagedBytes = 10, 16 << 20

// BenchmarkLatencyBesideAverages is BenchmarkReportLatency at 400 reports a second, in turns alone and while another process
// averages ten times five checkpoints at once, again and again, as workers do: through a store, with the SHA-256 of the result. Both
// share this machine's cores with the orchestrator, as under `outbid up`.
func BenchmarkLatencyBesideAverages(b *testing.B) {
	s := newSite(b, 100)
	env := func(out string) map[string]string {
		return map[string]string{"STUB_MODE": "latency", "STUB_INTERVAL": "250ms", "STUB_REPORTS": "65", "STUB_OUT": out}
	}
	var alone, beside []float64
	made := 0
	for b.Loop() {
		out := b.TempDir()
		s.run(b, 100, env(out))
		alone = append(alone, quantile(latencies(b, out), .99))
		stop := startAverages(b)
		out = b.TempDir()
		s.run(b, 100, env(out))
		made += stop()
		beside = append(beside, quantile(latencies(b, out), .99))
	}
	slices.Sort(alone)
	slices.Sort(beside)
	b.ReportMetric(quantile(alone, .5), "ms-p99-alone")
	b.ReportMetric(quantile(beside, .5), "ms-p99-beside")
	b.ReportMetric(float64(made)/float64(b.N), "averages")
}

// startAverages starts a process that averages until stop is called, which says how many averages it made.
func startAverages(b *testing.B) (stop func() int) {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "STUB_MODE=average", "STUB_OUT="+b.TempDir())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return func() int {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			b.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(out.String()))
		if err != nil || n == 0 {
			b.Fatalf("%d averages were made beside: %v", n, err)
		}
		return n
	}
}

// keepAveraging averages until its standard input ends, and prints how many averages it made.
func keepAveraging() error {
	ctx := context.Background()
	store, err := objects.Open(ctx, os.Getenv("STUB_OUT"))
	if err != nil {
		return err
	}
	h := safetensors.Header{Tensors: []safetensors.Tensor{{Name: "w", DType: safetensors.F32, Shape: []int64{averagedBytes / 4}, End: averagedBytes}}}
	head, err := h.Encode()
	if err != nil {
		return err
	}
	data := append(head, make([]byte, averagedBytes)...)
	for i := range 5 {
		if err := store.Put(ctx, "fork-"+strconv.Itoa(i), bytes.NewReader(data), int64(len(data))); err != nil {
			return err
		}
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	var g errgroup.Group
	counts := make([]int, averagesAtOnce)
	for k := range averagesAtOnce {
		g.Go(func() error {
			for ; ; counts[k]++ {
				select {
				case <-ended:
					return nil
				default:
				}
				if err := averageOnce(ctx, store, k, int64(len(data))); err != nil {
					return err
				}
			}
		})
	}
	err = g.Wait()
	made := 0
	for _, n := range counts {
		made += n
	}
	fmt.Println(made)
	return err
}

func averageOnce(ctx context.Context, store objects.Store, k int, size int64) error {
	var sources []checkpoint.Source
	for i := range 5 {
		key := "fork-" + strconv.Itoa(i)
		r := objects.NewRanged(ctx, store, key, size)
		defer r.Close() //nolint:errcheck // only read
		sources = append(sources, checkpoint.Source{Name: key, Weight: math.Sqrt(float64(i + 1)), File: r, Size: size})
	}
	mean, err := checkpoint.New(sources, nil)
	if err != nil {
		return err
	}
	stream := mean.Stream(ctx)
	defer stream.Close() //nolint:errcheck // it was read to its end
	return store.Put(ctx, "mean-"+strconv.Itoa(k), stream, mean.Size())
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
