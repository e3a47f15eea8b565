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
	// askEvery is the time between two attempts to claim a device of another process.
	askEvery = 100 * time.Millisecond
	// giveWay is how long this process does not claim a device again after another process has asked for it: several
	// attempts of that process.
	giveWay = 4 * askEvery
)

// Share claims devices of this machine only while trials use them, so that workers of several servers can offer the
// same devices. A device that no trial uses is kept until another process asks for it. Cores are interchangeable: a
// trial gets as many as it needs, whichever are free. Close releases the devices.
type Share struct {
	names []string
	cores []string
	dir   string
	// free ends processes that still use a device, such as an idle process with memory on a GPU, before another
	// process gets it.
	free func(ctx context.Context, device int32) error

	mu     sync.Mutex
	closed bool
	held   map[string]*holding
	// notBefore has the time until which this process does not claim a device again.
	notBefore map[string]time.Time
	leaving   sync.WaitGroup
}

// holding is a device that this process has claimed.
type holding struct {
	claim *claim.Claim
	users int
	// asked is set if another process wants the device, and leaving if it is about to be released.
	asked, leaving bool
}

const (
	corePrefix, gpuPrefix = "core/", "gpu/"
	// coresGate is claimed by the trial of the machine that collects several cores, because two such trials could
	// wait for each other.
	coresGate = "cores"
)

// NewShare returns a Share of the machine's devices, in the name of the worker's directory. Declared devices are not
// claimed, because they need not exist.
func NewShare(m Machine, dir string) *Share {
	s := &Share{names: m.Names, dir: dir, held: map[string]*holding{}, notBefore: map[string]time.Time{}}
	for _, name := range m.Names {
		if strings.HasPrefix(name, corePrefix) {
			s.cores = append(s.cores, name)
		}
	}
	return s
}

// OnRelease sets the function that ends idle processes on a GPU before another process gets it. It must be called
// before Take.
func (s *Share) OnRelease(free func(ctx context.Context, device int32) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = free
}

// Take claims devices, and waits for those that other processes use, until ctx ends. waits is called for the first
// device of each kind that it waits for. release returns the devices.
func (s *Share) Take(ctx context.Context, devices []int32, waits func(*claim.Held)) (release func() error, err error) {
	var taken []string
	release = func() error {
		s.release(taken)
		return nil
	}
	cores, gpus := s.sort(devices)
	if cores > 1 {
		gate, err := s.awaitName(ctx, func() (string, error) { return s.tryAlone(ctx, coresGate) }, waits)
		if err != nil {
			return nil, err
		}
		defer s.release([]string{gate})
	}
	for range cores {
		name, err := s.awaitName(ctx, func() (string, error) { return s.tryCore(ctx) }, waits)
		if err != nil {
			return nil, errors.Join(err, release())
		}
		taken = append(taken, name)
	}
	for _, gpu := range gpus {
		name, err := s.awaitName(ctx, func() (string, error) { return s.tryShared(ctx, gpu) }, waits)
		if err != nil {
			return nil, errors.Join(err, release())
		}
		taken = append(taken, name)
	}
	return release, nil
}

// sort returns how many of the devices are cores, and the names of the GPUs in an order that is the same for all
// trials of the machine, so that no two trials wait for each other.
func (s *Share) sort(devices []int32) (cores int, gpus []string) {
	for _, d := range devices {
		switch name := s.name(d); {
		case strings.HasPrefix(name, corePrefix):
			cores++
		case name != "":
			gpus = append(gpus, name)
		}
	}
	slices.Sort(gpus)
	return cores, gpus
}

func (s *Share) name(device int32) string {
	if int(device) < len(s.names) {
		return s.names[device]
	}
	return ""
}

// awaitName calls try until it returns the name of a claimed device.
func (s *Share) awaitName(ctx context.Context, try func() (string, error), waits func(*claim.Held)) (string, error) {
	for told := false; ; {
		name, err := try()
		if name != "" {
			return name, nil
		}
		if held, ok := errors.AsType[*claim.Held](err); ok {
			if !told {
				told = true
				waits(held)
			}
		} else if err != nil {
			return "", err
		}
		select {
		case <-time.After(askEvery):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// tryShared claims a device by its name and returns the name, or "" if the device is not free. The error is a
// *claim.Held if another process has it.
func (s *Share) tryShared(ctx context.Context, name string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[name]; h != nil {
		if h.leaving {
			return "", nil
		}
		h.users++
		return name, nil
	}
	return s.claim(ctx, name)
}

// tryAlone is like try, but only one trial of this process can have the device.
func (s *Share) tryAlone(ctx context.Context, name string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[name]; h != nil {
		if h.leaving || h.users > 0 {
			return "", nil
		}
		h.users++
		return name, nil
	}
	return s.claim(ctx, name)
}

// tryCore claims any core: an idle one of this process, otherwise one that no other process has. If this process has
// all cores, its trials share them, because its server does not start more trials than there are cores.
func (s *Share) tryCore(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	least, all := "", true
	for _, name := range s.cores {
		switch h := s.held[name]; {
		case h == nil || h.leaving:
			all = false
		case h.users == 0:
			h.users++
			return name, nil
		case least == "" || h.users < s.held[least].users:
			least = name
		}
	}
	if all && least != "" {
		s.held[least].users++
		return least, nil
	}
	var held error
	for _, name := range s.cores {
		if s.held[name] != nil {
			continue
		}
		got, err := s.claim(ctx, name)
		if got != "" {
			return got, nil
		}
		held = cmp.Or(held, err)
		if h, ok := errors.AsType[*claim.Held](err); ok && h.By.PID == 0 {
			break // a process that does not answer would delay this one at every core
		}
	}
	return "", held
}

// claim claims a device that this process does not have. It returns "" if the device is not free or left to other
// processes. The caller holds the lock.
func (s *Share) claim(ctx context.Context, name string) (string, error) {
	if s.closed || time.Now().Before(s.notBefore[name]) {
		return "", nil
	}
	c, err := claim.TakeAsked(ctx, name, s.dir, time.Now(), func() { s.asked(name) })
	if err != nil {
		return "", err
	}
	s.held[name] = &holding{claim: c, users: 1}
	return name, nil
}

// asked records that another process wants a device, which is released once no trial uses it.
func (s *Share) asked(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[name]; h != nil {
		h.asked = true
		s.releaseUnused(name, h)
	}
}

func (s *Share) release(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		h := s.held[name]
		h.users--
		s.releaseUnused(name, h)
	}
}

// releaseUnused releases a device that no trial uses if another process wants it or the worker ends. The caller holds
// the lock.
func (s *Share) releaseUnused(name string, h *holding) {
	if h.users > 0 || h.leaving || !(h.asked || s.closed) {
		return
	}
	h.leaving = true
	free := s.free
	s.leaving.Go(func() {
		if free != nil && strings.HasPrefix(name, gpuPrefix) {
			ctx, cancel := context.WithTimeout(context.Background(), freeTimeout)
			_ = free(ctx, int32(slices.Index(s.names, name))) // a process that does not end keeps its memory; the device is released nevertheless
			cancel()
		}
		_ = h.claim.Release() // the claim ends even if this fails
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.held, name)
		s.notBefore[name] = time.Now().Add(giveWay)
	})
}

// freeTimeout limits how long idle processes may take to leave a GPU.
const freeTimeout = 10 * time.Second

// Close releases every device once no trial uses it.
func (s *Share) Close() error {
	s.mu.Lock()
	s.closed, s.free = true, nil
	for d, h := range s.held {
		s.releaseUnused(d, h)
	}
	s.mu.Unlock()
	s.leaving.Wait()
	return nil
}
