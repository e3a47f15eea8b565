package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// atOnce is a store that returns every object at once, and records how large the reads are.
type atOnce struct {
	objects.Access
	largest atomic.Int64
}

func (a *atOnce) Get(context.Context, string) (io.ReadCloser, error) {
	return io.NopCloser(&counted{Reader: bytes.NewReader(make([]byte, 10<<20)), a: a}), nil
}

func (a *atOnce) GetRange(ctx context.Context, key string, from, n int64) (io.ReadCloser, error) {
	body, err := a.Get(ctx, key)
	if err == nil {
		_, err = io.CopyN(struct{ io.Writer }{io.Discard}, body, from)
		a.largest.Store(0)
	}
	return io.NopCloser(io.LimitReader(body, n)), err
}

type counted struct {
	io.Reader
	a *atOnce
}

func (c *counted) Read(p []byte) (int, error) {
	c.a.largest.Store(max(c.a.largest.Load(), int64(len(p))))
	return c.Reader.Read(p)
}

// All reads of a store together have one rate, except the first 4 MiB.
func TestALimitHoldsForAllObjectsTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &atOnce{}
		store := limit(a, 4<<20)
		began := time.Now()
		whole, err := store.Get(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		part, err := store.GetRange(t.Context(), "b", 1<<20, 6<<20)
		if err != nil {
			t.Fatal(err)
		}
		sizes := make(chan int64)
		for _, body := range []io.Reader{whole, part} {
			go func() {
				n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, body, make([]byte, 3<<20))
				if err != nil {
					t.Error(err)
				}
				sizes <- n
			}()
		}
		if n := <-sizes + <-sizes; n != 16<<20 {
			t.Errorf("%d bytes were read; want 16 MiB", n)
		}
		if took := time.Since(began).Round(time.Millisecond); took != 3*time.Second {
			t.Errorf("it took %s; want 3 s for the bytes beyond 4 MiB", took)
		}
		if n := a.largest.Load(); n != limitedBytes {
			t.Errorf("%d bytes were read at once; want %d", n, limitedBytes)
		}
	})
}

// A read that waits for the limit stops when its context ends.
func TestALimitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		body, err := limit(&atOnce{}, 1<<20).Get(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(2*time.Second, cancel)
		n, err := io.Copy(io.Discard, body)
		if !errors.Is(err, context.Canceled) || n < 5<<20 || n > 7<<20 {
			t.Errorf("%d bytes, %v; want about 6 MiB, and that it was cancelled", n, err)
		}
	})
}

func TestNoLimitIsNone(t *testing.T) {
	t.Parallel()
	if a := (&atOnce{}); limit(a, 0) != objects.Access(a) {
		t.Error("it is limited")
	}
}

// The limit applies in the averaging process.
func TestASubprocessAveragesAtItsRate(t *testing.T) {
	t.Parallel()
	store := openStore(t, t.TempDir())
	order := &outbidv1.Consolidation{Step: 900, Key: averageKey}
	for i := range 3 {
		ck := putBig(t, store, fmt.Sprintf("checkpoints/s-1/0/000000000100-%d.safetensors", i), 4)
		order.Sources = append(order.Sources, &outbidv1.ConsolidationSource{Checkpoint: ck, Steps: 1})
	}
	began := time.Now()
	made, err := Average(t.Context(), Averaging{Rate: 16 << 20}, store, order)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 450*time.Millisecond {
		t.Errorf("12 MiB took %s; want half a second or more, because 8 MiB of them are read at 16 MiB a second", took)
	}
	mustBe(t, store, made)
}

// A worker's averages have the configured rate.
func TestAWorkerAveragesAtItsRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const key, other = "checkpoints/s-1/0/000000000160-7.safetensors", "checkpoints/s-1/0/000000000120-8.safetensors"
		data := weights(t, "w", make([]float32, 1<<20)...)
		store := inMemory{key: data, other: data}
		w := &workerLoop{cfg: Config{Store: Direct(store), AverageRate: 2 << 20}}
		began := time.Now()
		done := w.average(t.Context(), &outbidv1.Consolidation{Step: 900, Key: averageKey, Sources: []*outbidv1.ConsolidationSource{
			{Checkpoint: &outbidv1.Checkpoint{Key: key, Bytes: int64(len(data))}, Steps: 60},
			{Checkpoint: &outbidv1.Checkpoint{Key: other, Bytes: int64(len(data))}, Steps: 60},
		}})
		if done.GetFailure() != "" || store[averageKey] == nil {
			t.Fatal(done.GetFailure())
		}
		if took := time.Since(began).Round(100 * time.Millisecond); took != 2*time.Second {
			t.Errorf("8 MiB took %s; want 2 s, because 4 MiB of them are read at 2 MiB a second", took)
		}
	})
}

func TestAWorkerRefusesARateThatIsTooLow(t *testing.T) {
	t.Parallel()
	cfg := Config{Node: "n", Bus: newFakeBus(t), Store: Direct(inMemory{}), Dir: t.TempDir(), Machine: machine(1), AverageRate: LeastAverageRate - 1}
	if err := cfg.check(); err == nil || !strings.Contains(err.Error(), "must be at least 1048576 bytes a second, or 0 for no limit, got 1048575") {
		t.Errorf("it says: %v", err)
	}
}
