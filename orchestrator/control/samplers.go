package control

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// samplers is the pool of places for the processes of remote tuners, which limits their number on this server and for
// each tenant. A sweep whose tuner has questions waits for a place. The process that has been idle the longest yields
// its place, and one whose turn is over does so after its answer. It is safe for concurrent use.
type samplers struct {
	all  int
	most func(tenant string) int64
	now  func() time.Time

	mu      sync.Mutex
	inside  []*place
	waiting []*place
}

// usualSamplers is the default number of processes that run at the same time. samplerTurn is how long a process may
// continue to answer while others wait.
const (
	usualSamplers = 16
	samplerTurn   = 10 * time.Second
)

// place is where one process runs, or waits to run.
type place struct {
	pool   *samplers
	tenant string
	// granted is closed once the process may start, and wanted once it must yield to another.
	granted, wanted chan struct{}
	// since is when the process started, or when it last became idle.
	since time.Time
	idle  bool
	// victim was asked to yield its place to this one.
	victim *place
	asked  bool
	left   bool
}

func newSamplers(all int, most func(tenant string) int64) *samplers {
	if all <= 0 {
		all = usualSamplers
	}
	return &samplers{all: all, most: most, now: time.Now}
}

// enter waits for a place until ctx ends. The caller must leave it.
func (s *samplers) enter(ctx context.Context, tenant string) (*place, error) {
	p := &place{pool: s, tenant: tenant, granted: make(chan struct{}), wanted: make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, p)
	s.assignPlaces()
	s.mu.Unlock()
	select {
	case <-p.granted:
		return p, nil
	case <-ctx.Done():
		p.leave()
		return nil, ctx.Err()
	}
}

// leave frees a place. It may be called more than once.
func (p *place) leave() {
	if p == nil {
		return
	}
	s := p.pool
	s.mu.Lock()
	defer s.mu.Unlock()
	same := func(o *place) bool { return o == p }
	s.inside, s.waiting, p.left = slices.DeleteFunc(s.inside, same), slices.DeleteFunc(s.waiting, same), true
	s.assignPlaces()
}

// works records whether the process has a question to answer.
func (p *place) works(now bool) {
	s := p.pool
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.idle == now {
		if p.idle = !now; p.idle {
			p.since = s.now()
		}
	}
	s.assignPlaces()
}

// held counts a tenant's processes.
func (s *samplers) held(tenant string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count(tenant)
}

func (s *samplers) count(tenant string) int {
	n := 0
	for _, p := range s.inside {
		if p.tenant == tenant {
			n++
		}
	}
	return n
}

// assignPlaces grants free places to waiting processes in their order, and asks others to yield for the rest.
func (s *samplers) assignPlaces() {
	for _, p := range slices.Clone(s.waiting) {
		most := s.most(p.tenant)
		full := most != limits.Unlimited && int64(s.count(p.tenant)) >= max(1, most)
		if !full && len(s.inside) < s.all {
			s.waiting = slices.DeleteFunc(s.waiting, func(o *place) bool { return o == p })
			s.inside, p.since = append(s.inside, p), s.now()
			close(p.granted)
			continue
		}
		if p.victim != nil && !p.victim.left {
			continue
		}
		if p.victim = s.choose(p, full); p.victim != nil {
			p.victim.asked = true
			close(p.victim.wanted)
		}
	}
}

// choose returns the place that must yield, or nil if none can yet. It belongs to the same tenant if that is at its
// limit, otherwise to the tenant with the most places. Idle processes come first, then those whose turn is over.
func (s *samplers) choose(p *place, own bool) *place {
	var best *place
	var bestRank [3]int64
	for _, o := range s.inside {
		if o.asked || own && o.tenant != p.tenant {
			continue
		}
		age := s.now().Sub(o.since)
		if !o.idle && age < samplerTurn {
			continue
		}
		rank := [3]int64{0, int64(s.count(o.tenant)), int64(age)}
		if o.idle {
			rank[0] = 1
		}
		if best == nil || slices.Compare(rank[:], bestRank[:]) > 0 {
			best, bestRank = o, rank
		}
	}
	return best
}

// samplersOf returns a function that returns how many tuner processes of a tenant may run at the same time.
func samplersOf(v *views, limit func(tenant string, set *outbidv1.Tenant) limits.Tenant) func(tenant string) int64 {
	return func(tenant string) int64 {
		if limit == nil {
			return limits.Unlimited
		}
		seen := v.load()
		if seen == nil {
			return limits.Default().Samplers
		}
		return limit(tenant, seen.Tenant(tenant)).Samplers
	}
}
