package usage_test

import (
	"bytes"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/usage"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// manyLeases returns a ledger with n leases of 100 sweeps, each with three batches of reports.
func manyLeases(b *testing.B, n int) *ledger.Memory {
	l, now := ledger.NewMemory(), day(1)
	write(b, l, now, joined("a", "h100"))
	for i := range 100 {
		id := "s-" + strconv.Itoa(i)
		write(b, l, now, submitted(id, "tenant"+strconv.Itoa(i%10), "ada", nil))
	}
	for i := range n {
		id := "s-" + strconv.Itoa(i%100)
		write(b, l, now, granted(id, uint64(i+1), "a", 0))
		for range 3 {
			r := &outbidv1.TrialReported{Sweep: id, Report: &outbidv1.Report{Step: 1, Metrics: map[string]float64{"loss": 1, "accuracy": .5}}}
			write(b, l, now, &outbidv1.Event{Kind: &outbidv1.Event_TrialReported{TrialReported: r}})
		}
		now = now.Add(time.Second)
		write(b, l, now, ended(id, uint64(i+1)))
	}
	return l
}

// BenchmarkUsage measures the first answer, which reads 500,000 batches of 100,000 leases, and the following ones.
func BenchmarkUsage(b *testing.B) {
	l := manyLeases(b, 100_000)
	q := usage.Query{By: []string{"tenant", "type"}}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			sum(b, open(filepath.Join(b.TempDir(), "usage"), l, day(20), &bytes.Buffer{}), q)
		}
	})
	b.Run("next", func(b *testing.B) {
		book := open(filepath.Join(b.TempDir(), "usage"), l, day(20), &bytes.Buffer{})
		sum(b, book, q)
		for b.Loop() {
			sum(b, book, q)
		}
	})
}
