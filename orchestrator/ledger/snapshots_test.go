package ledger_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
)

// found returns the newest snapshot with the changes since then.
func found(t *testing.T, l *ledger.JetStream) string {
	t.Helper()
	seq, data, err := l.LoadSnapshot(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	changes, err := l.LoadChanges(testContext(t), seq)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{strings.TrimSuffix(string(data), inParts())}
	for _, c := range changes {
		all = append(all, strings.TrimSuffix(string(c), inParts()))
	}
	return strings.Join(all, " ")
}

// A kill at any stage of a snapshot or of changes leaves the newest whole ones, and the next server continues from them.
func TestAKillInASnapshot(t *testing.T) {
	t.Parallel()
	changes := func(since, seq uint64) func(t *testing.T, l *ledger.JetStream) error {
		return func(t *testing.T, l *ledger.JetStream) error {
			t.Helper()
			return l.SaveChanges(testContext(t), since, seq, []byte(fmt.Sprint(since, "-", seq)+inParts()))
		}
	}
	whole := func(seq uint64) func(t *testing.T, l *ledger.JetStream) error {
		return func(t *testing.T, l *ledger.JetStream) error {
			t.Helper()
			return l.SaveSnapshot(testContext(t), seq, []byte(fmt.Sprint(seq)+inParts()))
		}
	}
	for name, c := range map[string]struct {
		save  func(t *testing.T, l *ledger.JetStream) error
		step  string
		nth   int
		after string
		fails bool
	}{
		"changes, before the first chunk":        {changes(6, 8), "chunk", 0, "2 2-4 4-6", true},
		"changes, before the last chunk":         {changes(6, 8), "chunk", 1, "2 2-4 4-6", true},
		"changes, before the manifest":           {changes(6, 8), "manifest", 0, "2 2-4 4-6", true},
		"changes, after the manifest":            {changes(6, 8), "", 0, "2 2-4 4-6 6-8", false},
		"merge, before the first chunk":          {whole(6), "chunk", 0, "2 2-4 4-6", true},
		"merge, before the manifest":             {whole(6), "manifest", 0, "2 2-4 4-6", true},
		"merge, before the changes are removed":  {whole(6), "clean", 0, "6", false},
		"merge, while the changes are removed":   {whole(6), "clean", 1, "6", false},
		"merge of some, before some are removed": {whole(4), "clean", 0, "4 4-6", false},
		"merge of some":                          {whole(4), "", 0, "4 4-6", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, stop := t.TempDir(), errors.New("killed")
			s := startSmallServer(t, dir)
			l := open(t, connect(t, bus.ConnConfig{Server: s}), ledger.Config{})
			for range 9 {
				mustAppend(t, l, "x")
			}
			for _, save := range []func(*testing.T, *ledger.JetStream) error{whole(2), changes(2, 4), changes(4, 6)} {
				if err := save(t, l); err != nil {
					t.Fatal(err)
				}
			}
			ledger.StopSnapshots(l, c.step, c.nth, stop)
			if err := c.save(t, l); errors.Is(err, stop) != c.fails {
				t.Fatalf("%v; want a stop: %t", err, c.fails)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			nc := connect(t, bus.ConnConfig{Server: startSmallServer(t, dir)})
			l = open(t, nc, ledger.Config{})
			if got := found(t, l); got != c.after {
				t.Errorf("the next server finds %q, want %q", got, c.after)
			}
			// It saves more, and the next snapshot of the whole state removes what the kill left.
			if err := l.SaveSnapshot(testContext(t), 8, []byte("8")); err != nil {
				t.Fatal(err)
			}
			if err := l.SaveChanges(testContext(t), 8, 9, []byte("8-9")); err != nil {
				t.Fatal(err)
			}
			if got := found(t, l); got != "8 8-9" {
				t.Errorf("after another snapshot it finds %q", got)
			}
			if err := l.SaveSnapshot(testContext(t), 9, []byte("9")); err != nil {
				t.Fatal(err)
			}
			if got := found(t, l); got != "9" {
				t.Errorf("after the last snapshot it finds %q", got)
			}
			js, err := jetstream.New(nc)
			if err != nil {
				t.Fatal(err)
			}
			stream, err := js.Stream(testContext(t), ledger.DefaultSnapshots)
			if err != nil {
				t.Fatal(err)
			}
			if n := stream.CachedInfo().State.Msgs; n != 4 { // two snapshots, each a chunk and a manifest
				t.Errorf("%d messages are left, want 4", n)
			}
		})
	}
}

// Damaged changes and those after them are left out, and the later batches are read from the ledger.
func TestDamagedChangesArePassedOver(t *testing.T) {
	t.Parallel()
	nc := connect(t, bus.ConnConfig{Server: startServer(t, t.TempDir(), 0)})
	log := new(lines)
	l := open(t, nc, ledger.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
	for range 9 {
		mustAppend(t, l, "x")
	}
	if err := l.SaveSnapshot(testContext(t), 2, []byte("2")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ since, seq uint64 }{{2, 4}, {4, 6}, {6, 8}, {4, 5}} { // another writer saved the last one
		if err := l.SaveChanges(testContext(t), c.since, c.seq, []byte(fmt.Sprint(c.since, "-", c.seq))); err != nil {
			t.Fatal(err)
		}
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(testContext(t), ledger.DefaultSnapshots)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		found string
		spoil uint64
	}{{"2 2-4 4-6 6-8", 8}, {"2 2-4 4-6", 6}, {"2 2-4 4-5", 4}, {"2", 2}, {"", 0}} {
		if got := found(t, l); got != want.found {
			t.Errorf("found %q, want %q", got, want.found)
		}
		chunk := fmt.Sprintf("outbid.v1.snapshots.%020d.*.0", want.spoil)
		if err := stream.Purge(testContext(t), jetstream.WithPurgeSubject(chunk)); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "reading the ledger instead"); n < 3 {
		t.Errorf("%d warnings: %s", n, log)
	}
}

// Changes up to a batch that the ledger does not have show that it has lost its end. Once that is accepted, they are left
// out.
func TestChangesBeyondTheEnd(t *testing.T) {
	t.Parallel()
	nc, js, _ := looseStream(t)
	l := open(t, nc, ledger.Config{})
	first := mustAppend(t, l, "x")
	mustAppend(t, l, "y")
	if err := l.SaveSnapshot(testContext(t), 1, []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := l.SaveChanges(testContext(t), 1, 2, []byte("1-2")); err != nil {
		t.Fatal(err)
	}
	data, err := js.Stream(testContext(t), ledger.DefaultStream)
	if err != nil {
		t.Fatal(err)
	}
	m, err := data.GetMsg(testContext(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(testContext(t), ledger.DefaultStream); err != nil {
		t.Fatal(err)
	}
	short := open(t, nc, ledger.Config{})
	if _, err := js.Publish(testContext(t), "outbid.v1.ledger", m.Data); err != nil {
		t.Fatal(err)
	}
	_, err = short.LoadChanges(testContext(t), 1)
	wantDamage(t, err, 2, "lost its end")
	short.Accept(nil)
	if got := found(t, short); got != "1" {
		t.Errorf("found %q", got)
	}
	short.Resume(1, first.GetHash())
	mustAppend(t, short, "z")
	if got := found(t, open(t, nc, ledger.Config{})); got != "1" { // the changes are of the lost batch with this number
		t.Errorf("after the next batch: found %q", got)
	}
}
