package server

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// scrubbed is a ledger with one unreadable batch.
type scrubbed struct {
	*ledger.Memory
	bad atomic.Uint64
}

func (s *scrubbed) Read(ctx context.Context, from uint64, f func(*outbidv1.Batch) error) error {
	return s.Memory.Read(ctx, from, func(b *outbidv1.Batch) error {
		if b.GetSeq() == s.bad.Load() {
			return &ledger.DamageError{Seq: b.GetSeq(), Reason: "it cannot be decoded"}
		}
		return f(b)
	})
}

// TestScrub checks that a scrub finds damage that a start would not read, logs it, and respects its rate.
func TestScrub(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		record := &scrubbed{Memory: ledger.NewMemory()}
		for range 8 {
			note := &outbidv1.Event{Kind: &outbidv1.Event_Note{Note: &outbidv1.Note{Text: strings.Repeat("x", scrubPiece)}}}
			if _, err := record.Append(t.Context(), time.Unix(1000, 0), []*outbidv1.Event{note}); err != nil {
				t.Fatal(err)
			}
		}
		var said strings.Builder
		l := &ledgerScrub{
			record: record, kick: make(chan chan struct{}), log: slog.New(slog.NewTextHandler(&said, nil)), lost: []ledger.Hole{{From: 2, To: 3}},
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.run(ctx) }()
		began := time.Now()
		l.now(ctx)
		if took := time.Since(began); took < 200*time.Millisecond || took > time.Second { // 8 MiB at 32 MiB/s
			t.Errorf("it took %s", took)
		}
		if c := l.check(); !c.GetOk() || !strings.HasPrefix(c.GetDetail(), "all batches up to 8 (8.0 MiB) are valid") {
			t.Errorf("%v", c)
		}
		record.bad.Store(5)
		<-time.After(scrubEvery + time.Minute)
		synctest.Wait()
		if c := l.check(); c.GetOk() || c.GetDetail() != "ledger batch 5 is damaged: it cannot be decoded; it lacks batches 2 to 3, which were given up" ||
			!l.damaged() || !strings.Contains(said.String(), "level=ERROR") {
			t.Errorf("%v; the log says %s", c, said.String())
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
