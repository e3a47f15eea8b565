package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestReportLogAddsWhatItLacks(t *testing.T) {
	t.Parallel()
	record := ledger.NewMemory()
	report := func(step int64) []*outbidv1.Event {
		return []*outbidv1.Event{{Kind: &outbidv1.Event_TrialReported{TrialReported: &outbidv1.TrialReported{
			Sweep: "s-1", Report: &outbidv1.Report{Step: step, Metrics: map[string]float64{"m": 1}},
		}}}}
	}
	dir := t.TempDir()
	var said strings.Builder
	log := slog.New(slog.NewTextHandler(&said, nil))
	l, err := openReportLog(dir, log)
	if err != nil {
		t.Fatal(err)
	}
	for step := range int64(5) {
		b, err := record.Append(t.Context(), time.Unix(1000, 0), report(step+1))
		if err != nil {
			t.Fatal(err)
		}
		if step < 2 { // the later ones were written during another server's term
			if err := l.Append(b.GetSeq(), report(step+1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(l.Flush(), l.Close()); err != nil {
		t.Fatal(err)
	}
	if l, err = openReportLog(dir, log); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	counted := &countedReads{Ledger: record}
	l.use(t.Context(), counted)
	for range 2 { // the second pass has nothing to do
		if err := l.complete(t.Context(), counted, []string{"s-1"}, func(string) bool { return true }); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := l.Reports("s-1"); err != nil || n != 5 {
		t.Errorf("%d reports, want 5: %v", n, err)
	}
	if counted.batches != 3 || strings.Contains(said.String(), "again from the ledger") {
		t.Errorf("%d batches were read for the 3 that were missing:\n%s", counted.batches, said.String())
	}
	if err := l.catchUp(t.Context(), counted); err != nil || counted.batches != 3 {
		t.Errorf("there was nothing to add: %v", err)
	}
	// An append after batches that this machine has not seen also adds those.
	for step := range int64(3) {
		if _, err := record.Append(t.Context(), time.Unix(1000, 0), report(step+6)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Append(8, report(8)); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Reports("s-1"); err != nil || n != 8 || counted.batches != 6 { // one beyond, to find the end
		t.Errorf("%d reports after %d batches were read, want 8 after 6: %v", n, counted.batches, err)
	}
}

// countedReads counts the batches that are read.
type countedReads struct {
	ledger.Ledger
	batches int
}

func (c *countedReads) Read(ctx context.Context, from uint64, f func(*outbidv1.Batch) error) error {
	return c.Ledger.Read(ctx, from, func(b *outbidv1.Batch) error {
		c.batches++
		return f(b)
	})
}
