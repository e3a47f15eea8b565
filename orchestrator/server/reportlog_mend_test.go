package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// lines is a log that is safe for concurrent use.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// reportBench is a history of reports with its ledger.
type reportBench struct {
	t      interface{ Fatalf(string, ...any) }
	log    *reportLog
	record *ledger.Memory
	said   *lines
	dir    string
	// all are the reports of the sweep, as "trial/step".
	all []string
}

func newReportBench(t interface{ Fatalf(string, ...any) }, dir string) *reportBench {
	b := &reportBench{t: t, record: ledger.NewMemory(), said: &lines{}, dir: dir}
	b.open()
	return b
}

func (b *reportBench) open() {
	var err error
	if b.log, err = openReportLog(b.dir, slog.New(slog.NewTextHandler(b.said, nil))); err != nil {
		b.t.Fatalf("%v", err)
	}
	b.log.use(context.Background(), b.record)
	if err := b.log.complete(context.Background(), b.record, []string{"s-1"}, func(string) bool { return len(b.all) > 0 }); err != nil {
		b.t.Fatalf("%v", err)
	}
}

// report appends a batch of reports.
func (b *reportBench) report(n int) {
	var events []*outbidv1.Event
	for range n {
		trial, step := int32(len(b.all)%7), int64(len(b.all))
		events = append(events, &outbidv1.Event{Kind: &outbidv1.Event_TrialReported{TrialReported: &outbidv1.TrialReported{
			Sweep: "s-1", Trial: trial, Report: &outbidv1.Report{Step: step, Metrics: map[string]float64{"m": float64(step) / 3}},
		}}})
		b.all = append(b.all, fmt.Sprintf("%d/%d", trial, step))
	}
	batch, err := b.record.Append(context.Background(), time.Unix(1000, 0), events)
	if err == nil {
		err = b.log.Append(batch.GetSeq(), events)
	}
	if err != nil {
		b.t.Fatalf("%v", err)
	}
}

// check reads all reports, those of one trial, and those after the first n, and compares them with the reported ones.
func (b *reportBench) check(n int) {
	gather := func(read func(f func(int32, *outbidv1.Report) error) error) []string {
		var got []string
		if err := read(func(trial int32, r *outbidv1.Report) error {
			got = append(got, fmt.Sprintf("%d/%d", trial, r.GetStep()))
			return nil
		}); err != nil {
			b.t.Fatalf("%v", err)
		}
		return got
	}
	ctx, trial := context.Background(), int32(3)
	var one []string
	for _, r := range b.all {
		if strings.HasPrefix(r, "3/") {
			one = append(one, r)
		}
	}
	for what, c := range map[string]struct{ want, got []string }{
		"all":        {b.all, gather(func(f func(int32, *outbidv1.Report) error) error { return b.log.Read(ctx, "s-1", nil, f) })},
		"of a trial": {one, gather(func(f func(int32, *outbidv1.Report) error) error { return b.log.Read(ctx, "s-1", &trial, f) })},
		"after n":    {b.all[n:], gather(func(f func(int32, *outbidv1.Report) error) error { return b.log.ReadAfter(ctx, "s-1", int64(n), f) })},
	} {
		if strings.Join(c.got, " ") != strings.Join(c.want, " ") {
			b.t.Fatalf("%s: %d reports, want %d", what, len(c.got), len(c.want))
		}
	}
}

// tempDir returns a directory that is removed after one run of a property.
func tempDir(t *rapid.T) string {
	dir, err := os.MkdirTemp("", "reports")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestReadsOutliveDamage checks that every read returns every report, even if files are damaged while the server runs
// or is down.
func TestReadsOutliveDamage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		dir := tempDir(t)
		b := newReportBench(t, dir)
		for range rapid.IntRange(1, 3).Draw(t, "damages") {
			for range rapid.IntRange(1, 3).Draw(t, "batches") {
				b.report(rapid.IntRange(1, 400).Draw(t, "reports"))
			}
			flush := rapid.Bool().Draw(t, "flush")
			if down := rapid.Bool().Draw(t, "down"); down {
				if err := errors.Join(b.log.Flush(), b.log.Close()); err != nil {
					t.Fatalf("%v", err)
				}
				spoil(t, dir)
				b.open()
			} else {
				if flush {
					if err := b.log.Flush(); err != nil {
						t.Fatalf("%v", err)
					}
				}
				spoil(t, dir)
			}
			var reading sync.WaitGroup
			for range 3 {
				reading.Go(func() { b.check(len(b.all) / 2) })
			}
			reading.Wait()
			if c := b.log.check(); !c.GetOk() {
				t.Fatalf("the doctor says %v", c)
			}
		}
		if err := b.log.Close(); err != nil {
			t.Fatalf("%v", err)
		}
	})
}

// spoil flips a bit of a file of the history, truncates the file, or removes it.
func spoil(t *rapid.T, dir string) {
	name := rapid.SampledFrom([]string{"s-1.reports", "s-1.reports", "s-1.reports", "complete-to", "ledger-end"}).Draw(t, "file")
	path := filepath.Join(dir, name)
	data, err := os.ReadFile(path)
	if err != nil || len(data) == 0 {
		return
	}
	at := rapid.IntRange(0, len(data)-1).Draw(t, "at")
	switch rapid.IntRange(0, 3).Draw(t, "how") {
	case 0:
		err = os.Remove(path)
	case 1:
		err = os.Truncate(path, int64(at))
	default:
		data[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// TestDamageIsSaidOnce checks that damage is logged once despite concurrent reads, and that the doctor reports the
// repair.
func TestDamageIsSaidOnce(t *testing.T) {
	t.Parallel()
	b := newReportBench(t, t.TempDir())
	b.report(2000)
	if err := b.log.Flush(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(b.dir, "s-1.reports")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-9] ^= 4
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	b.log.verify(t.Context(), []string{"s-1"})
	var reading sync.WaitGroup
	for range 20 {
		reading.Go(func() { b.check(10) })
	}
	reading.Wait()
	if n := strings.Count(b.said.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, b.said)
	}
	if c := b.log.check(); !c.GetOk() || !strings.Contains(c.GetDetail(), "the reports of 1 of 1 sweeps are complete; damaged files of 1 sweeps (s-1) were rebuilt") {
		t.Errorf("the doctor says %v", c)
	}
	// A failed rebuild is reported, and retried by the next read.
	b.log.mends.source = brokenLedger{b.record}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	err = b.log.Read(t.Context(), "s-1", nil, func(int32, *outbidv1.Report) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "the report history of s-1 is damaged: it is gone") || b.log.check().GetOk() {
		t.Errorf("%v; the doctor says %v", err, b.log.check())
	}
	b.log.mends.source = b.record
	b.check(10)
	if c := b.log.check(); !c.GetOk() {
		t.Errorf("the doctor says %v", c)
	}
	if err := b.log.Close(); err != nil {
		t.Error(err)
	}
}

type brokenLedger struct{ ledger.Ledger }

func (brokenLedger) Read(context.Context, uint64, func(*outbidv1.Batch) error) error {
	return errors.New("the ledger cannot be read")
}
