package bus

import (
	"fmt"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/identity"
)

// A large list is read with a few requests, and an unchanged one with a single request.
func TestManyWorkersAreReadWithFewRequests(t *testing.T) {
	t.Parallel()
	const workers, few = 500, 25
	keys := makeKeys(t)
	r := newRealm(t, keys, startServer(t, ServerConfig{Keys: keys}).URL())
	ctx, public := testContext(t), r.who["n1"].Public()
	for i := range workers {
		if err := AddWorker(ctx, r.admin, fmt.Sprintf("many-%d", i), public, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	nc := connect(t, ConnConfig{URL: r.url, User: orchestrator(t, keys)})
	requests := func() uint64 { return nc.Stats().OutMsgs }
	w, err := OpenWorkers(ctx, nc, WorkersConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	if n := requests(); n > few {
		t.Errorf("%d requests to read %d workers, want at most %d", n, workers, few)
	}
	for i := range workers {
		if node := fmt.Sprintf("many-%d", i); w.Key(node) != public {
			t.Fatalf("the key of %s is %q", node, w.Key(node))
		}
	}
	before := requests()
	if err := w.load(ctx); err != nil || requests() > before+1 {
		t.Errorf("%d requests to read an unchanged list: %v", requests()-before, err)
	}
	// Without announcements, the list finds changes when it is loaded again.
	if err := w.sub.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := r.workers.Remove(ctx, "many-7"); err != nil {
		t.Fatal(err)
	}
	r.join(t, "n2")
	r.join(t, "n3")
	before = requests()
	if err := w.load(ctx); err != nil || requests() > before+few {
		t.Errorf("%d requests to read a changed list: %v", requests()-before, err)
	}
	for node, want := range map[string]string{"many-7": "", "many-8": public, "n2": r.who["n2"].Public(), "n3": r.who["n3"].Public()} {
		if w.Key(node) != want {
			t.Errorf("the key of %s is %q, want %q", node, w.Key(node), want)
		}
	}
}

// AddWorker replaces a worker, and does not write an entry that is already there.
func TestAWorkerIsAddedWithoutTheList(t *testing.T) {
	t.Parallel()
	keys := makeKeys(t)
	r := newRealm(t, keys, startServer(t, ServerConfig{Keys: keys}).URL())
	ctx, first := testContext(t), r.who["n1"].Public()
	entry := func() uint64 {
		t.Helper()
		msg, err := r.workers.read(ctx, bucketSubject+nodePrefix+"n1")
		if err != nil {
			t.Fatal(err)
		}
		return msg.Sequence
	}
	before := entry()
	if err := AddWorker(ctx, r.admin, "n1", first, time.Now()); err != nil || entry() != before {
		t.Errorf("the same worker: entry %d instead of %d, %v", entry(), before, err)
	}
	if err := AddWorker(ctx, r.admin, "n1", r.who["n2"].Public(), time.Now()); err != nil || entry() == before {
		t.Errorf("another worker: entry %d, %v", entry(), err)
	}
	if err := AddWorker(ctx, r.admin, "n.1", first, time.Now()); err == nil {
		t.Error("n.1 is accepted")
	}
	if err := AddWorker(ctx, r.admin, "n1", "KEY", time.Now()); err == nil {
		t.Error("an invalid key is accepted")
	}
}

func orchestrator(t *testing.T, keys *identity.Keys) *identity.Credentials {
	t.Helper()
	who, err := keys.Orchestrator()
	if err != nil {
		t.Fatal(err)
	}
	return who
}
