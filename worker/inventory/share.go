package inventory

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/worker/claim"
)

const (
	// askEvery is how often a device that another process uses is asked for again.
	askEvery = 100 * time.Millisecond
	// giveWay is how long a device that another process has asked for is left to it: several of its questions.
	giveWay = 4 * askEvery
)

// Share claims devices of this machine for as long as trials use them, so that workers of several servers can offer the same
// ones. A device that no trial uses any more is kept until another process asks for it. Close it.
type Share struct {
	names []string
	dir   string
	// free ends what still uses a device, such as an idle process with memory on a GPU, before another process gets it.
	free func(ctx context.Context, device int32) error

	mu     sync.Mutex
	closed bool
	held   map[int32]*holding
	// left says until when a device is left to other processes.
	left    map[int32]time.Time
	leaving sync.WaitGroup
}

// holding is a device that this process has claimed.
type holding struct {
	claim *claim.Claim
	users int
	// asked: another process wants it. leaves: it is about to be released.
	asked, leaves bool
}

// NewShare returns a Share of the machine's devices that were found, in the name of the worker's directory. Declared devices are
// not claimed, as they need not exist.
func NewShare(m Machine, dir string) *Share {
	return &Share{names: m.Names, dir: dir, held: map[int32]*holding{}, left: map[int32]time.Time{}}
}

// OnRelease sets what ends the idle processes on a GPU before another process gets it. Call it before Take.
func (s *Share) OnRelease(free func(ctx context.Context, device int32) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = free
}

// Take claims devices, and waits for those that other processes use until ctx ends; waits hears of each once. Release gives them
// back.
func (s *Share) Take(ctx context.Context, devices []int32, waits func(*claim.Held)) (release func() error, err error) {
	var taken []int32
	release = func() error {
		s.give(taken)
		return nil
	}
	// In one order on the whole machine, so that no two trials wait for each other.
	for _, d := range slices.SortedFunc(slices.Values(devices), func(a, b int32) int { return cmp.Compare(s.name(a), s.name(b)) }) {
		if s.name(d) == "" {
			continue
		}
		if err := s.await(ctx, d, waits); err != nil {
			return nil, errors.Join(err, release())
		}
		taken = append(taken, d)
	}
	return release, nil
}

func (s *Share) name(device int32) string {
	if int(device) < len(s.names) {
		return s.names[device]
	}
	return ""
}

// await claims one device.
func (s *Share) await(ctx context.Context, device int32, waits func(*claim.Held)) error {
	for told := false; ; {
		had, err := s.try(ctx, device)
		if had {
			return nil
		}
		if held, ok := errors.AsType[*claim.Held](err); ok {
			if !told {
				told = true
				waits(held)
			}
		} else if err != nil {
			return err
		}
		select {
		case <-time.After(askEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// try claims a device if it is free; the error is a *claim.Held if another process has it, nil if it is left to others for now.
func (s *Share) try(ctx context.Context, device int32) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[device]; h != nil {
		if h.leaves {
			return false, nil
		}
		h.users++
		return true, nil
	}
	if s.closed || time.Now().Before(s.left[device]) {
		return false, nil
	}
	c, err := claim.TakeAsked(ctx, s.names[device], s.dir, time.Now(), func() { s.asked(device) })
	if err != nil {
		return false, err
	}
	s.held[device] = &holding{claim: c, users: 1}
	return true, nil
}

// asked has a device leave once no trial uses it.
func (s *Share) asked(device int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[device]; h != nil {
		h.asked = true
		s.settle(device, h)
	}
}

func (s *Share) give(devices []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range devices {
		h := s.held[d]
		h.users--
		s.settle(d, h)
	}
}

// settle releases a device that no trial uses if another process wants it, or the worker ends. The caller holds the lock.
func (s *Share) settle(device int32, h *holding) {
	if h.users > 0 || h.leaves || !(h.asked || s.closed) {
		return
	}
	h.leaves = true
	free := s.free
	s.leaving.Go(func() {
		if free != nil && strings.HasPrefix(s.names[device], "gpu/") {
			ctx, cancel := context.WithTimeout(context.Background(), freeTimeout)
			_ = free(ctx, device) // what does not end keeps its memory, and the device is given away all the same
			cancel()
		}
		_ = h.claim.Release() // its socket ends with it in any case
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.held, device)
		s.left[device] = time.Now().Add(giveWay)
	})
}

// freeTimeout bounds how long idle processes may take to leave a GPU.
const freeTimeout = 10 * time.Second

// Close gives every device back once no trial uses it.
func (s *Share) Close() error {
	s.mu.Lock()
	s.closed, s.free = true, nil
	for d, h := range s.held {
		s.settle(d, h)
	}
	s.mu.Unlock()
	s.leaving.Wait()
	return nil
}
