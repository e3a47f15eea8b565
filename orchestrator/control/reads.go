package control

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// do hands in an input and waits for its answer.
func do[T any](ctx context.Context, l *Loop, input func(done func(T, error)) Input) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	var none T
	if err := l.send(ctx, input(func(v T, err error) { answers <- answer{v, err} })); err != nil {
		return none, err
	}
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-l.done:
		select {
		case a := <-answers:
			return a.value, a.err
		default:
			return none, errStopped
		}
	}
}

// Submit starts a sweep whose spec has been checked.
func (l *Loop) Submit(ctx context.Context, spec *outbidv1.SweepSpec, actor, key string) (string, error) {
	return do(ctx, l, func(done func(string, error)) Input {
		return Submit{Spec: proto.CloneOf(spec), Actor: actor, Key: key, Done: done}
	})
}

// Command pauses, resumes or stops a sweep.
func (l *Loop) Command(ctx context.Context, sweep string, cmd outbidv1.SweepCommand, actor string) error {
	_, err := do(ctx, l, func(done func(struct{}, error)) Input {
		return Command{Sweep: sweep, Command: cmd, Actor: actor, Done: func(err error) { done(struct{}{}, err) }}
	})
	return err
}

// Delete forgets a sweep that has ended, and says when that was and who did it; one that is forgotten already is no error.
func (l *Loop) Delete(ctx context.Context, sweep, actor string) (state.Deleted, error) {
	return do(ctx, l, func(done func(state.Deleted, error)) Input {
		return Delete{Sweep: sweep, Actor: actor, Done: done}
	})
}

// Deleted lists the sweeps that were deleted, by id.
func (l *Loop) Deleted() []state.Deleted {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.core.st.Deleted()
}

// Extend gives a sweep more trials, longer steps or a wider space, and says what is trained again, as its checkpoint was
// dropped. A preview changes nothing.
func (l *Loop) Extend(ctx context.Context, req *outbidv1.ExtendSweepRequest, actor string) ([]*outbidv1.TrainedAgain, error) {
	return do(ctx, l, func(done func([]*outbidv1.TrainedAgain, error)) Input {
		return Extend{Request: req, Actor: actor, Done: done}
	})
}

// Ask gives a client of an external sweep something to train.
func (l *Loop) Ask(ctx context.Context, sweep, client string) (*outbidv1.AskTrialResponse, error) {
	return do(ctx, l, func(done func(*outbidv1.AskTrialResponse, error)) Input {
		return Ask{Sweep: sweep, Client: client, Done: done}
	})
}

// Tell takes in what that client measured.
func (l *Loop) Tell(ctx context.Context, req *outbidv1.TellTrialRequest) (*outbidv1.TellTrialResponse, error) {
	return do(ctx, l, func(done func(*outbidv1.TellTrialResponse, error)) Input {
		now := timestamppb.New(l.clock.now())
		for _, r := range req.GetReports() {
			if r.GetTime() == nil {
				r.Time = now
			}
		}
		return Tell{Request: req, Done: done}
	})
}

// Sweeps returns every sweep, newest first.
func (l *Loop) Sweeps() []*outbidv1.Sweep {
	l.mu.RLock()
	ids := slices.Clone(l.core.st.SweepIDs)
	l.mu.RUnlock()
	var all []*outbidv1.Sweep
	for _, id := range slices.Backward(ids) {
		// One after the other: while somebody reads nothing is decided, and a thousand sweeps take long.
		if s, err := l.Sweep(id); err == nil {
			all = append(all, s)
		}
	}
	return all
}

// Sweep returns one sweep.
func (l *Loop) Sweep(id string) (*outbidv1.Sweep, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s, err := l.core.st.Sweep(id)
	if err != nil {
		return nil, err
	}
	return l.sweep(s), nil
}

// Trials returns at most n trials of a sweep by number, beginning with number from.
func (l *Loop) Trials(sweep string, from int32, n int) ([]*outbidv1.Trial, error) {
	return l.trials(sweep, func(s *state.Sweep) []*state.Trial {
		from, to := min(max(0, int(from)), len(s.Trials)), len(s.Trials)
		return s.Trials[from:min(to, from+n)]
	})
}

// BestTrials returns at most n trials by metric, best first, after offset others.
func (l *Loop) BestTrials(sweep string, n, offset int) ([]*outbidv1.Trial, error) {
	return l.trials(sweep, func(s *state.Sweep) []*state.Trial { return s.BestTrials(n, offset) })
}

func (l *Loop) trials(sweep string, choose func(*state.Sweep) []*state.Trial) ([]*outbidv1.Trial, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s, err := l.core.st.Sweep(sweep)
	if err != nil {
		return nil, err
	}
	var views []*outbidv1.Trial
	for _, t := range choose(s) {
		views = append(views, l.core.st.TrialView(s, t))
	}
	return views, nil
}

// Trial returns one trial.
func (l *Loop) Trial(sweep string, n int32) (*outbidv1.Trial, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s, err := l.core.st.Sweep(sweep)
	if err != nil {
		return nil, err
	}
	t, err := s.Trial(n)
	if err != nil {
		return nil, err
	}
	return l.core.st.TrialView(s, t), nil
}

// Nodes returns every node, by name.
func (l *Loop) Nodes() []*outbidv1.Node {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var nodes []*outbidv1.Node
	for _, name := range l.core.st.NodeNames {
		v := l.core.st.Nodes[name].NodeView()
		if link, ok := l.core.nodes[name]; ok && !link.seen.IsZero() {
			v.LastSeen = timestamppb.New(link.seen)
		}
		nodes = append(nodes, v)
	}
	return nodes
}

// Changes returns the sweep's trials changed after version since (0: all), the new version, and a channel that is
// closed at the next change.
func (l *Loop) Changes(sweep string, since uint64) (trials []*outbidv1.Trial, version uint64, next <-chan struct{}, err error) {
	l.mu.Lock() // it may make the channel
	defer l.mu.Unlock()
	s, err := l.core.st.Sweep(sweep)
	if err != nil {
		return nil, 0, nil, err
	}
	for _, n := range s.ChangedSince(since) {
		trials = append(trials, l.core.st.TrialView(s, s.Trials[n]))
	}
	ch, ok := l.changed[sweep]
	if !ok {
		ch = make(chan struct{})
		l.changed[sweep] = ch
	}
	return trials, s.Version, ch, nil
}

// tellReaders wakes those who wait for a change of the sweeps that events are about.
func (l *Loop) tellReaders(events []*outbidv1.Event) {
	if len(l.changed) == 0 {
		return
	}
	for _, e := range events {
		id := l.core.st.SweepOf(e)
		if n := e.GetNote(); n != nil {
			id = n.GetSweep()
		}
		if ch, ok := l.changed[id]; ok {
			close(ch)
			delete(l.changed, id)
		}
	}
}

// Reports calls f for every report of the sweep, or of one trial, oldest first.
func (l *Loop) Reports(
	ctx context.Context, sweep string, trial *int32, f func(trial int32, r *outbidv1.Report) error,
) error {
	if err := l.exists(sweep, trial); err != nil {
		return err
	}
	if err := l.cfg.History.Read(ctx, sweep, trial, f); err != nil {
		return fmt.Errorf("reading the reports of %s: %w", sweep, err)
	}
	return nil
}

// ReportsAfter calls f for the reports of a sweep after the first n, oldest first.
func (l *Loop) ReportsAfter(
	ctx context.Context, sweep string, n int64, f func(trial int32, r *outbidv1.Report) error,
) error {
	if err := l.exists(sweep, nil); err != nil {
		return err
	}
	if err := l.cfg.History.ReadAfter(ctx, sweep, n, f); err != nil {
		return fmt.Errorf("reading the reports of %s: %w", sweep, err)
	}
	return nil
}

// Superseded returns what says of a sweep's reports whether their trial was started again from before them since.
func (l *Loop) Superseded(sweep string) (func(trial int32, r *outbidv1.Report) bool, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s, err := l.core.st.Sweep(sweep)
	if err != nil {
		return nil, err
	}
	back := map[int32]*state.Trial{}
	for _, t := range s.Trials {
		if len(t.Rollbacks) > 0 { // the list is replaced when it changes, never written to
			back[t.Number] = &state.Trial{Rollbacks: t.Rollbacks}
		}
	}
	return func(trial int32, r *outbidv1.Report) bool {
		t := back[trial]
		return t != nil && t.Superseded(r)
	}, nil
}

func (l *Loop) exists(sweep string, trial *int32) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s, err := l.core.st.Sweep(sweep)
	if err != nil || trial == nil {
		return err
	}
	_, err = s.Trial(*trial)
	return err
}

// Ledger calls f for every batch from a sequence to the last one.
func (l *Loop) Ledger(ctx context.Context, from uint64, f func(*outbidv1.Batch) error) error {
	return l.cfg.Ledger.Read(ctx, max(1, from), f)
}

// Info says what the server is and how it fares.
func (l *Loop) Info() *outbidv1.GetServerInfoResponse {
	info := l.cfg.Info()
	info.Checks = append(info.Checks, l.checkClock())
	l.mu.RLock()
	defer l.mu.RUnlock()
	info.LedgerSeq, info.Policy, info.Leader = l.core.st.Seq, l.core.policy.Name(), true
	info.PolicyOptions = maps.Clone(l.cfg.PolicyOptions)
	return info
}
