package state

import (
	"slices"
	"time"

	"github.com/benbjohnson/immutable"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// PublishedSweep is an immutable copy of a sweep after a batch of the ledger.
type PublishedSweep struct {
	// sweep has no Trials: they are in trials, by number.
	sweep  Sweep
	trials *immutable.List[*Trial]
	next   chan struct{}
}

// publish copies a sweep with the trials that changed since old, which may be nil. It adds the nodes where these
// trials hold devices, or held some in old.
func (s *Sweep) publish(old *PublishedSweep, nodes map[string]bool) *PublishedSweep {
	p := &PublishedSweep{sweep: *s, next: make(chan struct{})}
	p.sweep.Trials, p.sweep.ranking, p.sweep.refs = nil, nil, nil
	p.sweep.Queued, p.sweep.Running = slices.Clone(s.Queued), slices.Clone(s.Running)
	p.sweep.Forked = slices.Clone(s.Forked)
	p.sweep.Measured = slices.Clone(s.Measured)
	p.sweep.Notes, p.sweep.changes = slices.Clip(s.Notes), slices.Clip(s.changes)
	if old == nil {
		all := immutable.NewListBuilder[*Trial]()
		for _, t := range s.Trials {
			all.Append(t.publish())
			mark(nodes, t.Leases)
		}
		p.trials = all.List()
	} else {
		p.trials = old.trials
		for _, n := range s.ChangedSince(old.sweep.Version) {
			t := s.Trials[n].publish()
			mark(nodes, t.Leases)
			if int(n) == p.trials.Len() { // they are listed by number
				p.trials = p.trials.Append(t)
				continue
			}
			mark(nodes, p.trials.Get(int(n)).Leases)
			p.trials = p.trials.Set(int(n), t)
		}
	}
	return p
}

func mark(nodes map[string]bool, leases []*Lease) {
	for _, l := range leases {
		for _, place := range l.Places {
			nodes[place.Node] = true
		}
	}
}

func (t *Trial) publish() *Trial {
	c := *t
	c.Checkpoints, c.Measured = slices.Clone(t.Checkpoints), slices.Clone(t.Measured)
	c.Leases = slices.Clone(t.Leases)
	for i, held := range t.Leases {
		l := *held
		l.Places = slices.Clone(l.Places) // they end one by one
		c.Leases[i] = &l
	}
	return &c
}

// Sweep returns the sweep without its Trials. It must not be changed.
func (p *PublishedSweep) Sweep() *Sweep { return &p.sweep }

// Len returns the number of trials.
func (p *PublishedSweep) Len() int { return p.trials.Len() }

// At returns the trial with a number, which must be at least 0 and below Len. It must not be changed.
func (p *PublishedSweep) At(n int32) *Trial { return p.trials.Get(int(n)) }

// Trial returns a trial by number.
func (p *PublishedSweep) Trial(n int32) (*Trial, error) {
	if n < 0 || int(n) >= p.Len() {
		return nil, notFound("trial", trialName(p.sweep.ID, n))
	}
	return p.At(n), nil
}

// Best lists all trials by the metric, best first. Trials without a metric come last.
func (p *PublishedSweep) Best() []*Trial {
	all := make([]*Trial, 0, p.Len())
	for i := p.trials.Iterator(); !i.Done(); {
		_, t := i.Next()
		all = append(all, t)
	}
	p.sweep.sortBest(all)
	return all
}

// ChangedSince lists the trials that changed after a version, by number. 0 lists all, math.MaxUint64 none.
func (p *PublishedSweep) ChangedSince(version uint64) []int32 {
	return p.sweep.changedSince(version, p.Len(), p.At)
}

// Changed returns a channel that is closed when a newer version or the deletion of the sweep is published.
func (p *PublishedSweep) Changed() <-chan struct{} { return p.next }

// View returns the sweep as users see it at a time.
func (p *PublishedSweep) View(at time.Time) *outbidv1.Sweep { return p.sweep.view(at, p.Len(), p.At) }

// TrialView returns a trial as users see it at a time.
func (p *PublishedSweep) TrialView(at time.Time, t *Trial) *outbidv1.Trial {
	return p.sweep.trialView(at, t)
}

// TrialSummary returns a trial as users see it at a time, without the field config; config_json is there.
func (p *PublishedSweep) TrialSummary(at time.Time, t *Trial) *outbidv1.Trial {
	return trialSummary(&p.sweep, at, t)
}
