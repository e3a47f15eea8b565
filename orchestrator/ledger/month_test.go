package ledger_test

import (
	"flag"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

var monthReports = flag.Int("month-reports", 90_000, "reports of the month that TestAMonthIsBounded simulates")

// TestAMonthIsBounded simulates a month of a busy cluster on the ledger's clock: each day appends reports as one
// segment, saves a snapshot, and archives segments that are older than a week. The streams and the heap must not grow
// after the first weeks, and the whole month is read.
func TestAMonthIsBounded(t *testing.T) {
	const days, keepDays, perBatch = 30, 7, 25
	nc := connect(t, bus.ConnConfig{Server: startServer(t, t.TempDir(), 0)})
	perDay := *monthReports / days / perBatch // batches
	l := open(t, nc, archiving(t.TempDir(), uint64(perDay)))
	events, at := reports(perBatch), time.Unix(1.7e9, 0)
	var day1, most, heap, mostHeap, moved uint64
	for day := range days {
		for range perDay {
			at = at.Add(24 * time.Hour / time.Duration(perDay))
			if _, err := l.Append(t.Context(), at, events); err != nil {
				t.Fatal(err)
			}
		}
		err := l.SaveSnapshot(t.Context(), uint64((day+1)*perDay), []byte("state"))
		if err != nil {
			t.Fatal(err)
		}
		archived, err := l.Archive(t.Context(), ledger.ArchiveConfig{Before: at.Add(-keepDays * 24 * time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		moved += uint64(archived.Bytes)
		used := ledgerBytes(t, nc)
		switch {
		case day == 0:
			day1 = used
		case day == 2*keepDays:
			heap = heapBytes()
		case day > 2*keepDays:
			mostHeap = max(mostHeap, heapBytes())
		}
		most = max(most, used)
	}
	t.Logf("%d reports of %d KiB: at most %d KiB in NATS; %d KiB archived; heap %d KiB after two weeks, then at most %d KiB", days*perDay*perBatch,
		days*day1>>10, most>>10, moved>>10, heap>>10, mostHeap>>10)
	if limit := (keepDays + 2) * day1 * 11 / 10; most > limit {
		t.Errorf("NATS stores %d bytes, want at most %d", most, limit)
	}
	if mostHeap > heap+32<<20 {
		t.Errorf("the heap has grown from %d to %d bytes", heap, mostHeap)
	}
	batches := 0
	if err := l.Read(t.Context(), 1, func(*outbidv1.Batch) error { batches++; return nil }); err != nil || batches != days*perDay {
		t.Errorf("%d batches are read, want %d: %v", batches, days*perDay, err)
	}
}

// ledgerBytes returns what NATS stores of the ledger.
func ledgerBytes(t *testing.T, nc *nats.Conn) (total uint64) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	list := js.ListStreams(testContext(t))
	for info := range list.Info() {
		if strings.HasPrefix(info.Config.Name, ledger.DefaultStream) {
			total += info.State.Bytes
		}
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	return total
}

// heapBytes returns the size of the live heap of this process, in which NATS runs too.
func heapBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
