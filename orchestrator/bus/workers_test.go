package bus

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/identity"
)

// A replica that lags behind returns an older entry of a worker. It is not believed, and read again.
func TestALaggingReplicaIsNotBelieved(t *testing.T) {
	t.Parallel()
	keys := makeKeys(t)
	r := newRealm(t, keys, startServer(t, ServerConfig{Keys: keys}).URL())
	ctx, w := testContext(t), r.workers
	entry := func() *jetstream.RawStreamMsg {
		t.Helper()
		msg, err := w.read(ctx, bucketSubject+nodePrefix+"n1")
		if err != nil {
			t.Fatal(err)
		}
		return msg
	}
	first := entry().Sequence
	old, err := identity.NewVerifier(r.who["n1"].Public())
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		if w.set("n1", old, first) || w.set("n1", nil, 0) {
			t.Errorf("%s: an older entry is believed", when)
		}
	}
	r.join(t, "n1")
	check("joined again")
	if w.Key("n1") != r.who["n1"].Public() {
		t.Errorf("the worker's key is %s", w.Key("n1"))
	}
	if err := w.reload(ctx, "n1"); err != nil {
		t.Errorf("the newest entry is not believed: %v", err)
	}
	if err := w.Remove(ctx, "n1"); err != nil {
		t.Fatal(err)
	}
	check("removed")
	removed := entry()
	if err := w.reload(ctx, "n1"); err != nil || w.Key("n1") != "" || removed.Header.Get(operationHeader) != "PURGE" {
		t.Errorf("removed: %v, %q, %v", err, w.Key("n1"), removed.Header)
	}
	if entry, err := w.kv.Get(ctx, nodePrefix+"n1"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("NATS does not see that it is removed: %v, %v", entry, err)
	}
	announced := nats.NewMsg(changeSubject + nodePrefix + "n1")
	announced.Header.Set(nats.JSSequence, strconv.FormatUint(removed.Sequence+1, 10))
	w.changedOn(announced) // a change that is not there yet
	if err := w.reload(ctx, "n1"); !errors.Is(err, errBehind) {
		t.Errorf("read before the announced change is there: %v, want %v", err, errBehind)
	}
	r.join(t, "n1")
	if err := w.reload(ctx, "n1"); err != nil || w.Key("n1") != r.who["n1"].Public() {
		t.Errorf("joined after that: %v, %q", err, w.Key("n1"))
	}
}

// The cluster's keys can be replaced once no worker is left that believes the old ones alone.
func TestKeysAreReplacedWithoutWorkers(t *testing.T) {
	t.Parallel()
	keys := makeKeys(t)
	r := newRealm(t, keys, startServer(t, ServerConfig{Keys: keys}).URL())
	ctx, fresh := testContext(t), makeKeys(t).Orders().Public()
	if err := r.workers.Pin(ctx, keys.Orders().Public()); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"n1", "n2"} {
		if err := r.workers.Pin(ctx, fresh); err == nil || !strings.Contains(err.Error(), "remove all workers") {
			t.Errorf("while %s is listed: %v", node, err)
		}
		if err := r.workers.Remove(ctx, node); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.workers.Pin(ctx, fresh); err != nil {
		t.Fatal(err)
	}
	r.join(t, "n1")
	if err := r.workers.Pin(ctx, fresh); err != nil {
		t.Errorf("with the new keys: %v", err)
	}
	if err := r.workers.Pin(ctx, keys.Orders().Public()); err == nil {
		t.Error("the old keys are accepted again")
	}
}
