package checkpoint_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint"
	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
)

func testContext() context.Context { return context.Background() }

// BenchmarkAverage averages five files in the page cache. BenchmarkCat reads the same files like `cat`.
func BenchmarkAverage(b *testing.B) {
	for _, d := range []safetensors.DType{safetensors.F32, safetensors.BF16, safetensors.F16, safetensors.F8E4M3, safetensors.F64} {
		b.Run(string(d), func(b *testing.B) {
			sources, bytes := benchSources(b, d)
			out, err := os.Create(filepath.Join(b.TempDir(), "out"))
			if err != nil {
				b.Fatal(err)
			}
			defer out.Close()
			b.SetBytes(bytes)
			cores := runtime.GOMAXPROCS(0)
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores + 1))
			used := processorTime(b)
			for b.Loop() {
				a, err := checkpoint.New(sources, nil)
				if err != nil {
					b.Fatal(err)
				}
				if err := a.Write(b.Context(), out, cores); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((processorTime(b)-used)/float64(b.N), "cpu-s/op")
		})
	}
}

func BenchmarkCat(b *testing.B) {
	sources, bytes := benchSources(b, safetensors.F32)
	b.SetBytes(bytes)
	p := make([]byte, 128<<10) // like coreutils
	used := processorTime(b)
	defer func() { b.ReportMetric((processorTime(b)-used)/float64(b.N), "cpu-s/op") }()
	for b.Loop() {
		for _, s := range sources {
			if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{io.NewSectionReader(s.File, 0, s.Size)}, p); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// processorTime returns this process's CPU time in seconds, which is meaningful on a busy machine too.
func processorTime(b *testing.B) float64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// benchSources writes five files of 64 MiB, or of OUTBID_AVERAGE_MIB.
func benchSources(b *testing.B, d safetensors.DType) (sources []checkpoint.Source, bytes int64) {
	b.Helper()
	mib := 64
	if n, err := strconv.Atoi(os.Getenv("OUTBID_AVERAGE_MIB")); err == nil {
		mib = n
	}
	dir := b.TempDir()
	data := make([]byte, 1<<20)
	for i := range data {
		data[i] = byte(i*7) & 0x3b
	}
	for i := range 5 {
		f, err := os.Create(filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = f.Close() })
		h := safetensors.Header{Tensors: []safetensors.Tensor{{Name: "w", DType: d, Shape: []int64{int64(mib) << 20 / d.Size()}, End: int64(mib) << 20}}}
		head, err := h.Encode()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := f.Write(head); err != nil {
			b.Fatal(err)
		}
		for range mib {
			if _, err := f.Write(data); err != nil {
				b.Fatal(err)
			}
		}
		size := int64(len(head)) + int64(mib)<<20
		bytes += size
		sources = append(sources, checkpoint.Source{Name: f.Name(), Weight: float64(i + 1), File: f, Size: size})
	}
	return sources, bytes
}
