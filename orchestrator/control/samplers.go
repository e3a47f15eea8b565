package control

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/limits"
)

// samplers is the pool of places for tuners in processes of their own: so many on this server, and of each tenant. A sweep
// whose tuner has to be told something waits for a place. The process that has been idle the longest makes room, and one that
// has worked for its turn does after its answer. It may be used by several goroutines.
type samplers struct {
	all  int
	most func(tenant string) int64
	now  func() time.Time

	mu      sync.Mutex
	inside  []*place
	waiting []*place
}

// usualSamplers is how many processes run at once on a server if nothing else is said, and samplerTurn how long one may go on
// answering while others wait.
const (
	usualSamplers = 16
	samplerTurn   = 10 * time.Second
)

// place is where one process runs, or waits to.
type place struct {
	pool   *samplers
	tenant string
	// granted is closed once the process may start, and wanted once it is to make room for another.
	granted, wanted chan struct{}
	// since is when the process started, or when it last became idle.
	since time.Time
	idle  bool
	// victim was asked to make room for this one.
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

// enter waits for a place until ctx ends; leave it.
func (s *samplers) enter(ctx context.Context, tenant string) (*place, error) {
	p := &place{pool: s, tenant: tenant, granted: make(chan struct{}), wanted: make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, p)
	s.settle()
	s.mu.Unlock()
	select {
	case <-p.granted:
		return p, nil
	case <-ctx.Done():
		p.leave()
		return nil, ctx.Err()
	}
}

// leave gives a place up. It may be called more than once.
func (p *place) leave() {
	if p == nil {
		return
	}
	s := p.pool
	s.mu.Lock()
	defer s.mu.Unlock()
	same := func(o *place) bool { return o == p }
	s.inside, s.waiting, p.left = slices.DeleteFunc(s.inside, same), slices.DeleteFunc(s.waiting, same), true
	s.settle()
}

// works says whether the process has something to answer.
func (p *place) works(now bool) {
	s := p.pool
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.idle == now {
		if p.idle = !now; p.idle {
			p.since = s.now()
		}
	}
	s.settle()
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

// settle lets in who fits, in their order, and asks others to make room for who does not.
func (s *samplers) settle() {
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

// choose returns who is to make room: one of the tenant if that has all that it may, else one of the tenant with the most; who
// is idle first, and then whose turn is over; nil if nobody yet.
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
