package history

import (
	"context"
	"fmt"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// tContext returns a context for helpers of tests, properties and fuzzers.
func tContext(testFataler) context.Context { return context.Background() }

// failingReader is a ledger that cannot be read to its end.
type failingReader struct{ err error }

func (r failingReader) Read(context.Context, uint64, func(*outbidv1.Batch) error) error { return r.err }

func benchEvents(seq, n int) []*outbidv1.Event {
	events := make([]*outbidv1.Event, n)
	for i := range events {
		events[i] = report("digits-1", int32(seq/50*100+i), int64(seq))
		events[i].GetTrialReported().GetReport().Metrics["accuracy"] = float64(i) / 512
	}
	return events
}

// BenchmarkAppend appends batches of reports without the sync, which happens once per snapshot.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 32, 512} {
		b.Run(fmt.Sprintf("reports=%d", n), func(b *testing.B) {
			h := openHistory(b, b.TempDir())
			events := benchEvents(0, n)
			seq := uint64(0)
			for b.Loop() {
				seq++
				mustAppend(b, h, seq, events...)
			}
			b.ReportMetric(float64(seq)*float64(n)/b.Elapsed().Seconds(), "reports/s")
			closeHistory(b, h)
		})
	}
}

// BenchmarkRead opens a sweep with a million reports, and reads all of it and one trial.
func BenchmarkRead(b *testing.B) {
	dir := b.TempDir()
	h := openHistory(b, dir)
	const batches, n = 10_000, 100
	start := time.Now()
	for seq := range batches {
		mustAppend(b, h, uint64(seq+1), benchEvents(seq, n)...)
	}
	mustFlush(b, h)
	b.Logf("%d reports in %d bytes and %d blocks, appended in %s", batches*n, h.files["digits-1"].size,
		len(h.files["digits-1"].blocks), time.Since(start))
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			if got := count(b, h, nil); got != batches*n {
				b.Fatal(got)
			}
		}
		b.ReportMetric(float64(b.N)*batches*n/b.Elapsed().Seconds(), "reports/s")
	})
	b.Run("trial", func(b *testing.B) {
		trial := int32(10_007)
		for b.Loop() {
			if got := count(b, h, &trial); got != 50 {
				b.Fatal(got)
			}
		}
	})
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			if _, err := openHistory(b, dir).LastSeq("digits-1"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func count(b *testing.B, h *History, trial *int32) int {
	b.Helper()
	n := 0
	err := h.Read(b.Context(), "digits-1", trial, func(int32, *outbidv1.Report) error { n++; return nil })
	if err != nil {
		b.Fatal(err)
	}
	return n
}
