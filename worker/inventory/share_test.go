package inventory

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/outbid-dev/outbid/worker/claim"
)

// shares returns two Shares of a machine that only exists in this test, as two servers have them.
func shares(t *testing.T, spec string) (first, second *Share) {
	t.Helper()
	m, err := find(spec, twoGPUs)
	if err != nil {
		t.Fatal(err)
	}
	tail := t.TempDir()
	for i := range m.Names {
		if m.Names[i] != "" {
			m.Names[i] += tail
		}
	}
	first, second = NewShare(m, "/first"), NewShare(m, "/second")
	t.Cleanup(func() {
		if err := errors.Join(first.Close(), second.Close()); err != nil {
			t.Error(err)
		}
	})
	return first, second
}

func take(t *testing.T, s *Share, devices ...int32) (release func() error) {
	t.Helper()
	release, err := s.Take(t.Context(), devices, func(*claim.Held) {})
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// isAsked reports whether another process has asked for a device of this one.
func isAsked(s *Share) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		if h.asked {
			return true
		}
	}
	return false
}

// A server without trials releases its devices once another server wants them; before that, it keeps idle processes
// on a GPU.
func TestShareGivesIdleDevicesAway(t *testing.T) {
	t.Parallel()
	first, second := shares(t, "gpu")
	freed := make(chan int32, 2)
	first.OnRelease(func(_ context.Context, device int32) error {
		freed <- device
		return nil
	})
	for range 2 { // the second time without a claim
		if err := take(t, first, 1)(); err != nil {
			t.Fatal(err)
		}
	}
	if len(freed) > 0 {
		t.Error("its idle processes were ended although no process wanted the device")
	}
	if err := take(t, second, 1)(); err != nil {
		t.Fatal(err)
	}
	if d := <-freed; d != 1 {
		t.Errorf("freed device %d", d)
	}
}

// A trial waits for a device in use and reports its process; then both take turns.
func TestSharesTakeTurns(t *testing.T) {
	t.Parallel()
	first, second := shares(t, "gpu")
	const turns = 4
	held := make(chan *claim.Held, turns)
	release := take(t, first, 0)
	var order []string
	var mu sync.Mutex
	var both sync.WaitGroup
	used := func(who string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, who)
	}
	both.Go(func() {
		for range turns {
			again, err := second.Take(t.Context(), []int32{0}, func(h *claim.Held) { held <- h })
			if err != nil {
				t.Error(err)
				return
			}
			used("second")
			_ = again()
		}
	})
	h := <-held
	if h.By.Dir != "/first" || h.By.PID == 0 {
		t.Errorf("held by %v", h.By)
	}
	for !isAsked(first) { // the answer comes before the question is noted
		runtime.Gosched()
	}
	both.Go(func() {
		for range turns {
			_ = release()
			again, err := first.Take(t.Context(), []int32{0}, func(*claim.Held) {})
			if err != nil {
				t.Error(err)
				return
			}
			used("first")
			release = again
		}
		_ = release()
	})
	both.Wait()
	if order[0] != "second" {
		t.Errorf("the one that waited was not next: %v", order)
	}
	if len(order) != 2*turns {
		t.Errorf("used %v", order)
	}
}

// Trials that need the same devices in another order do not deadlock.
func TestSharesNeverBlockEachOther(t *testing.T) {
	t.Parallel()
	first, second := shares(t, "gpu")
	var both sync.WaitGroup
	for i, s := range []*Share{first, second} {
		both.Go(func() {
			for range 3 {
				devices := []int32{0, 1}
				if i == 1 {
					slices.Reverse(devices)
				}
				release, err := s.Take(t.Context(), devices, func(*claim.Held) {})
				if err != nil {
					t.Error(err)
					return
				}
				if err := release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	both.Wait()
}

// Cores are interchangeable: a second server's trial gets any free core, and a trial that needs all of them gets its
// turn while trials that need one come and go.
func TestShareTakesAnyCore(t *testing.T) {
	t.Parallel()
	const cores = 3
	first, second := coreShares(t, cores), coreShares(t, cores)
	first.names, first.cores = second.names, second.cores
	release := take(t, first, 0)
	other := take(t, second, 0, 1) // while the first has core 0
	if err := errors.Join(release(), other()); err != nil {
		t.Fatal(err)
	}
	ctx, done := context.WithCancel(t.Context())
	var small sync.WaitGroup
	for device := range int32(cores) {
		small.Go(func() {
			for ctx.Err() == nil {
				if release, err := first.Take(ctx, []int32{device}, func(*claim.Held) {}); err == nil {
					_ = release()
				}
			}
		})
	}
	all := take(t, second, 0, 1, 2)
	done()
	small.Wait()
	if err := all(); err != nil {
		t.Error(err)
	}
}

// coreShares returns a Share of a machine with a number of cores.
func coreShares(t *testing.T, cores int) *Share {
	t.Helper()
	m := Machine{}
	for i := range cores {
		m.Names = append(m.Names, fmt.Sprint(corePrefix, i, t.TempDir()))
	}
	s := NewShare(m, t.TempDir())
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// A waiting claim ends with its context and keeps nothing. Declared devices can be used by every server that declares
// them.
func TestShareEndsWaiting(t *testing.T) {
	t.Parallel()
	first, second := shares(t, "gpu,cpu:1")
	defer take(t, first, 1)() //nolint:errcheck // it cannot fail
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := second.Take(ctx, []int32{0, 1}, func(*claim.Held) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("it waited: %v", err)
	}
	if err := errors.Join(take(t, first, 0, 2)(), take(t, second, 0, 2)()); err != nil {
		t.Error(err)
	}
	first2, second2 := take(t, first, 2), take(t, second, 2)
	if err := errors.Join(first2(), second2()); err != nil {
		t.Error(err)
	}
}
