package control

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Sweeps returns every sweep, newest first.
func (l *Loop) Sweeps() []*outbidv1.Sweep {
	v := l.view.Load()
	all := make([]*outbidv1.Sweep, 0, len(v.SweepIDs))
	for _, id := range slices.Backward(v.SweepIDs) {
		if s, err := v.Sweep(id); err == nil {
			all = append(all, l.sweep(v, s))
		}
	}
	return all
}

// Sweep returns one sweep.
func (l *Loop) Sweep(id string) (*outbidv1.Sweep, error) {
	v := l.view.Load()
	s, err := v.Sweep(id)
	if err != nil {
		return nil, err
	}
	return l.sweep(v, s), nil
}

// Deleted lists the sweeps that were deleted, by ID.
func (l *Loop) Deleted() []state.Deleted { return l.view.Load().Deleted() }

// Trials returns at most n trials of a sweep by number, beginning with number from.
func (l *Loop) Trials(sweep string, from int32, n int) ([]*outbidv1.Trial, error) {
	return trialViews(l.view.Load(), sweep, func(s *state.PublishedSweep) []*state.Trial {
		from := min(max(0, int(from)), s.Len())
		var chosen []*state.Trial
		for i := from; i < min(s.Len(), from+n); i++ {
			chosen = append(chosen, s.At(int32(i)))
		}
		return chosen
	})
}

// BestTrials returns at most n trials by metric, best first, after offset others.
func (l *Loop) BestTrials(sweep string, n, offset int) ([]*outbidv1.Trial, error) {
	return trialViews(l.view.Load(), sweep, func(s *state.PublishedSweep) []*state.Trial {
		all := l.best(s)
		return all[min(len(all), offset):min(len(all), offset+n)]
	})
}

// trialViews returns the chosen trials of a sweep as users see them.
func trialViews(v *view, sweep string, choose func(*state.PublishedSweep) []*state.Trial) ([]*outbidv1.Trial, error) {
	s, err := v.Sweep(sweep)
	if err != nil {
		return nil, err
	}
	var views []*outbidv1.Trial
	for _, t := range choose(s) {
		views = append(views, s.TrialView(v.Time, t))
	}
	return views, nil
}

// Trial returns one trial.
func (l *Loop) Trial(sweep string, n int32) (*outbidv1.Trial, error) {
	v := l.view.Load()
	s, err := v.Sweep(sweep)
	if err != nil {
		return nil, err
	}
	t, err := s.Trial(n)
	if err != nil {
		return nil, err
	}
	return s.TrialView(v.Time, t), nil
}

// Nodes returns every node, by name.
func (l *Loop) Nodes() []*outbidv1.Node {
	var nodes []*outbidv1.Node
	l.view.Load().Nodes(func(name string, n *state.PublishedNode) {
		shown := &outbidv1.Node{Info: n.View.GetInfo(), State: n.View.GetState(), Reason: n.View.GetReason(), Uses: n.View.GetUses(), Faults: n.View.GetFaults()}
		if at := l.lastSeen(name); !at.IsZero() {
			shown.LastSeen = timestamppb.New(at)
		}
		nodes = append(nodes, shown)
	})
	return nodes
}

// Changes returns the sweep's trials changed after version since (0: all), the new version, and a channel that is
// closed at the next change.
func (l *Loop) Changes(sweep string, since uint64) (trials []*outbidv1.Trial, version uint64, next <-chan struct{}, err error) {
	v := l.view.Load()
	s, err := v.Sweep(sweep)
	if err != nil {
		return nil, 0, nil, err
	}
	for _, n := range s.ChangedSince(since) {
		trials = append(trials, s.TrialView(v.Time, s.At(n)))
	}
	return trials, s.Sweep().Version, s.Changed(), nil
}

// EachChange calls f for each of the sweep's trials that changed after version since (0: all), without the field
// config. It returns the new version, and a channel that is closed at the next change.
func (l *Loop) EachChange(sweep string, since uint64, f func(*outbidv1.Trial)) (version uint64, next <-chan struct{}, err error) {
	v := l.view.Load()
	s, err := v.Sweep(sweep)
	if err != nil {
		return 0, nil, err
	}
	for _, n := range s.ChangedSince(since) {
		f(s.TrialSummary(v.Time, s.At(n)))
	}
	return s.Sweep().Version, s.Changed(), nil
}

// Superseded returns a function that reports whether a report of the sweep was made before its trial restarted from
// an earlier step.
func (l *Loop) Superseded(sweep string) (func(trial int32, r *outbidv1.Report) bool, error) {
	s, err := l.view.Load().Sweep(sweep)
	if err != nil {
		return nil, err
	}
	return func(trial int32, r *outbidv1.Report) bool {
		t, err := s.Trial(trial)
		return err == nil && t.Superseded(r)
	}, nil
}

// HasReports reports whether a trial of the sweep has reported the sweep's metric.
func (l *Loop) HasReports(sweep string) bool {
	s, err := l.view.Load().Sweep(sweep)
	return err == nil && s.Sweep().Best >= 0
}

func (l *Loop) exists(sweep string, trial *int32) error {
	s, err := l.view.Load().Sweep(sweep)
	if err != nil || trial == nil {
		return err
	}
	_, err = s.Trial(*trial)
	return err
}

// Prices returns the policy's latest prices, or nil if it has made none.
func (l *Loop) Prices() *outbidv1.Prices { return l.view.Load().Prices() }

// Info describes the server and its health.
func (l *Loop) Info() *outbidv1.GetServerInfoResponse {
	info := l.cfg.Info()
	info.Checks = append(info.Checks, l.checkClock())
	info.LedgerSeq, info.Policy, info.Leader = l.last(), l.cfg.Policy.Name(), true
	info.PolicyOptions = maps.Clone(l.cfg.PolicyOptions)
	return info
}
