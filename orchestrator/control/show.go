package control

import (
	"maps"
	"slices"
	"sync/atomic"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Reads answer readers from the state after the last append, from the history and from the ledger. They take no lock
// that Run holds, and wait for no decision.
type Reads struct {
	cfg      *Config
	views    *views
	rounds   *roundReader
	arrivals *arrivals
	time     *timekeeper
	samplers *samplers
	// rates are the tenants' report rates in bytes per second.
	rates atomic.Pointer[map[string]float64]
}

// Sweeps returns every sweep, newest first.
func (r *Reads) Sweeps() []*outbidv1.Sweep {
	v := r.views.load()
	all := make([]*outbidv1.Sweep, 0, len(v.SweepIDs))
	for _, id := range slices.Backward(v.SweepIDs) {
		if s, err := v.Sweep(id); err == nil {
			all = append(all, r.views.sweep(v, s))
		}
	}
	return all
}

// Sweep returns one sweep.
func (r *Reads) Sweep(id string) (*outbidv1.Sweep, error) {
	v := r.views.load()
	s, err := v.Sweep(id)
	if err != nil {
		return nil, err
	}
	return r.views.sweep(v, s), nil
}

// TraceOf returns the traceparent of a sweep, or "" if it is not traced.
func (r *Reads) TraceOf(id string) string {
	if s, err := r.views.load().Sweep(id); err == nil {
		return s.Sweep().Spec.GetTraceparent()
	}
	return ""
}

// SweepBytes returns the size of a sweep's checkpoints and reports, or 0 if the sweep does not exist.
func (r *Reads) SweepBytes(id string) int64 {
	s, err := r.views.load().Sweep(id)
	if err != nil {
		return 0
	}
	return s.Sweep().CheckpointBytes + s.Sweep().ReportBytes
}

// Deleted lists the sweeps that were deleted, by ID.
func (r *Reads) Deleted() []state.Deleted { return r.views.load().Deleted() }

// Trials returns at most n trials of a sweep by number, beginning with number from.
func (r *Reads) Trials(sweep string, from int32, n int) ([]*outbidv1.Trial, error) {
	return trialViews(r.views.load(), sweep, func(s *state.PublishedSweep) []*state.Trial {
		from := min(max(0, int(from)), s.Len())
		var chosen []*state.Trial
		for i := from; i < min(s.Len(), from+n); i++ {
			chosen = append(chosen, s.At(int32(i)))
		}
		return chosen
	})
}

// BestTrials returns at most n trials by metric, best first, after offset others.
func (r *Reads) BestTrials(sweep string, n, offset int) ([]*outbidv1.Trial, error) {
	return trialViews(r.views.load(), sweep, func(s *state.PublishedSweep) []*state.Trial {
		all := r.views.best(s)
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
func (r *Reads) Trial(sweep string, n int32) (*outbidv1.Trial, error) {
	v := r.views.load()
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
func (r *Reads) Nodes() []*outbidv1.Node {
	var nodes []*outbidv1.Node
	r.views.load().Nodes(func(name string, n *state.PublishedNode) {
		shown := &outbidv1.Node{Info: n.View.GetInfo(), State: n.View.GetState(), Reason: n.View.GetReason(), Uses: n.View.GetUses(), Faults: n.View.GetFaults()}
		if at := r.arrivals.lastSeen(name); !at.IsZero() {
			shown.LastSeen = timestamppb.New(at)
		}
		nodes = append(nodes, shown)
	})
	return nodes
}

// Changes returns the sweep's trials changed after version since (0: all), the new version, and a channel that is
// closed at the next change.
func (r *Reads) Changes(sweep string, since uint64) (trials []*outbidv1.Trial, version uint64, next <-chan struct{}, err error) {
	v := r.views.load()
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
func (r *Reads) EachChange(sweep string, since uint64, f func(*outbidv1.Trial)) (version uint64, next <-chan struct{}, err error) {
	v := r.views.load()
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
func (r *Reads) Superseded(sweep string) (func(trial int32, report *outbidv1.Report) bool, error) {
	s, err := r.views.load().Sweep(sweep)
	if err != nil {
		return nil, err
	}
	return func(trial int32, report *outbidv1.Report) bool {
		t, err := s.Trial(trial)
		return err == nil && t.Superseded(report)
	}, nil
}

// HasReports reports whether a trial of the sweep has reported the sweep's metric.
func (r *Reads) HasReports(sweep string) bool {
	s, err := r.views.load().Sweep(sweep)
	return err == nil && s.Sweep().Best >= 0
}

func (r *Reads) exists(sweep string, trial *int32) error {
	s, err := r.views.load().Sweep(sweep)
	if err != nil || trial == nil {
		return err
	}
	_, err = s.Trial(*trial)
	return err
}

// Prices returns the policy's latest prices, or nil if it has made none.
func (r *Reads) Prices() *outbidv1.Prices { return r.views.load().Prices() }

// DevicePrices returns the prices of devices in the ledger, or nil if it has none.
func (r *Reads) DevicePrices() *outbidv1.DevicePrices { return r.views.load().DevicePrices() }

// Info describes the server and its health.
func (r *Reads) Info() *outbidv1.GetServerInfoResponse {
	info := r.cfg.Info()
	info.Checks = append(info.Checks, r.time.check())
	info.LedgerSeq, info.Policy, info.Leader = r.views.load().Seq, r.cfg.Policy.Name(), true
	info.PolicyOptions = maps.Clone(r.cfg.PolicyOptions)
	return info
}
