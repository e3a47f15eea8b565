package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// partsOf lists the subjects of the stored parts.
func partsOf(t *testing.T, nc *nats.Conn) (jetstream.Stream, []string) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(testContext(t), ledger.DefaultStream+"_PARTS")
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(testContext(t), jetstream.WithSubjectFilter(">"))
	if err != nil {
		t.Fatal(err)
	}
	var subjects []string
	for subject := range info.State.Subjects {
		subjects = append(subjects, subject)
	}
	return stream, subjects
}

// TestPartsThatWereNotAppendedAreRemoved makes a writer store the parts of a batch in whose place another one is
// appended.
func TestPartsThatWereNotAppendedAreRemoved(t *testing.T) {
	t.Parallel()
	nc := connect(t, bus.ConnConfig{Server: startSmallServer(t, t.TempDir())})
	first, second := open(t, nc, ledger.Config{}), open(t, nc, ledger.Config{})
	mustAppend(t, second, "small")
	if _, err := first.Append(testContext(t), time.Now(), notes(inParts())); !errors.Is(err, ledger.ErrConflict) {
		t.Fatalf("a deposed writer: %v", err)
	}
	if _, left := partsOf(t, nc); len(left) != 3 {
		t.Fatalf("parts %v", left)
	}
	b := mustAppend(t, second, "y"+inParts())
	_, left := partsOf(t, nc)
	if len(left) != 3 || !strings.Contains(left[0], fmt.Sprintf("%016x", b.GetHash()[:8])) {
		t.Errorf("parts %v of batch %x", left, b.GetHash())
	}
	var seqs []uint64
	if err := open(t, nc, ledger.Config{}).Read(testContext(t), 1, count(&seqs)); err != nil || len(seqs) != 2 {
		t.Errorf("read %v, %v", seqs, err)
	}
}

func TestAMissingOrChangedPartIsNamed(t *testing.T) {
	t.Parallel()
	nc := connect(t, bus.ConnConfig{Server: startSmallServer(t, t.TempDir())})
	l := open(t, nc, ledger.Config{})
	mustAppend(t, l, "small")
	mustAppend(t, l, inParts())
	read := func() error {
		return open(t, nc, ledger.Config{}).Read(testContext(t), 1, func(*outbidv1.Batch) error { return nil })
	}
	stream, subjects := partsOf(t, nc)
	if err := nc.Publish(subjects[0], []byte("other bytes")); err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushWithContext(testContext(t)); err != nil {
		t.Fatal(err)
	}
	wantDamage(t, read(), 2, "its content has hash")
	if err := stream.Purge(testContext(t), jetstream.WithPurgeSubject(subjects[0])); err != nil {
		t.Fatal(err)
	}
	wantDamage(t, read(), 2, "of 3 is missing from stream OUTBID_LEDGER_PARTS")
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(testContext(t), ledger.DefaultStream+"_PARTS"); err != nil {
		t.Fatal(err)
	}
	wantDamage(t, read(), 2, "which holds its events, is missing")
}

// TestSnapshotsOfSmallMessages saves a state that does not fit one message.
func TestSnapshotsOfSmallMessages(t *testing.T) {
	t.Parallel()
	nc := connect(t, bus.ConnConfig{Server: startSmallServer(t, t.TempDir())})
	l := open(t, nc, ledger.Config{})
	mustAppend(t, l, "small")
	ctx, cancel := context.WithTimeout(testContext(t), 20*time.Second)
	defer cancel()
	if err := l.SaveSnapshot(ctx, 1, []byte(inParts())); err != nil {
		t.Fatal(err)
	}
	if seq, data, err := l.LoadSnapshot(ctx); err != nil || seq != 1 || string(data) != inParts() {
		t.Errorf("snapshot of batch %d with %d bytes, %v", seq, len(data), err)
	}
}
