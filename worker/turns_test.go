package worker

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"testing"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// waitsIn takes a turn in a goroutine, and returns once that waits.
func waitsIn(ctx context.Context, turns *averagerPool, behind string) <-chan *subprocess {
	got := make(chan *subprocess, 1)
	go func() {
		p, err := turns.acquire(ctx, behind)
		if err == nil {
			got <- p
		}
		close(got)
	}()
	for turns.countWaiting(behind, 0) == 0 {
		runtime.Gosched()
	}
	return got
}

// A process that has averaged computes the next waiting average, in any store and also after a failure, and ends if
// none waits.
func TestASubprocessGoesOnWithTheAverageThatWaits(t *testing.T) {
	t.Parallel()
	turns := newAveragerPool(1)
	p, err := turns.acquire(t.Context(), "")
	if p != nil || err != nil {
		t.Fatalf("the first turn has %v, %v", p, err)
	}
	if p, err = startSubprocess(""); err != nil {
		t.Fatal(err)
	}
	data := weights(t, "w", 1, 10)
	const key = "checkpoints/s-1/0/000000000160-7.safetensors"
	encoded, err := proto.Marshal(&outbidv1.Consolidation{
		Step: 900, Key: averageKey,
		Sources: []*outbidv1.ConsolidationSource{{Checkpoint: &outbidv1.Checkpoint{Key: key, Bytes: int64(len(data))}, Steps: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for k := range 3 {
		store := openStore(t, t.TempDir())
		if err := store.Put(t.Context(), key, bytes.NewReader(data), int64(len(data))); err != nil {
			t.Fatal(err)
		}
		order, _ := subprocessOrderFor(store)
		if k != 1 { // the second time it gets an order that it cannot decode
			order.Order = encoded
		}
		made, over, err := p.run(t.Context(), &order, store)
		if over || (err != nil) != (k == 1) {
			t.Fatalf("average %d: %v, over: %v", k, err, over)
		}
		if k != 1 {
			mustBe(t, store, made)
		}
		next := waitsIn(t.Context(), turns, "")
		turns.release(p)
		if got := <-next; got != p {
			t.Fatalf("the waiting average gets %v instead of %v", got, p)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	elsewhere := waitsIn(ctx, turns, "another group")
	turns.release(p)
	if <-elsewhere; p.cmd.ProcessState == nil {
		t.Error("the process runs although no average waits for it")
	}
	cancel()
}

// An average that stops waiting leaves no process behind, and a process that is stopped while it averages ends.
func TestASubprocessEndsWithWhoWantsIt(t *testing.T) {
	t.Parallel()
	turns := newAveragerPool(1)
	if _, err := turns.acquire(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	p, err := startSubprocess("")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone := waitsIn(ctx, turns, "")
	cancel()
	<-gone
	turns.release(p)
	if p.cmd.ProcessState == nil {
		t.Error("the process runs although no average waits any more")
	}
	if p, err = startSubprocess(""); err != nil {
		t.Fatal(err)
	}
	if _, over, err := p.run(ctx, &subprocessOrder{}, nil); !over || !errors.Is(err, context.Canceled) || p.cmd.ProcessState == nil {
		t.Errorf("after a cancel: %v, over: %v", err, over)
	}
}
