package control

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// do queues an input and waits for its answer.
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
			return none, state.ErrStopping
		}
	}
}

// Submit starts a sweep whose spec has been checked.
func (l *Loop) Submit(ctx context.Context, spec *outbidv1.SweepSpec, actor, key string) (string, error) {
	process, err := l.openTuner(ctx, spec)
	if err != nil {
		return "", err
	}
	return do(ctx, l, func(done func(string, error)) Input {
		return Submit{Spec: proto.CloneOf(spec), Actor: actor, Key: key, Opened: process.status(), Done: func(id string, err error) {
			process.adopt(id, err)
			done(id, err)
		}}
	})
}

// Command pauses, resumes or stops a sweep.
func (l *Loop) Command(ctx context.Context, sweep string, cmd outbidv1.SweepCommand, actor string) error {
	_, err := do(ctx, l, func(done func(struct{}, error)) Input {
		return Command{Sweep: sweep, Command: cmd, Actor: actor, Done: func(err error) { done(struct{}{}, err) }}
	})
	return err
}

// Delete removes a sweep that has ended, and returns the time and the user of the deletion. It succeeds for a sweep
// that was deleted before.
func (l *Loop) Delete(ctx context.Context, sweep, actor string) (state.Deleted, error) {
	return do(ctx, l, func(done func(state.Deleted, error)) Input {
		return Delete{Sweep: sweep, Actor: actor, Done: done}
	})
}

// Extend gives a sweep more trials, longer training or a wider space. It returns the trials that restart because
// their checkpoints were dropped. A preview changes nothing.
func (l *Loop) Extend(ctx context.Context, req *outbidv1.ExtendSweepRequest, actor string) ([]*outbidv1.TrainedAgain, error) {
	return do(ctx, l, func(done func([]*outbidv1.TrainedAgain, error)) Input {
		return Extend{Request: req, Actor: actor, Done: done}
	})
}

// Ask requests a trial for a client of an external sweep.
func (l *Loop) Ask(ctx context.Context, sweep, client string) (*outbidv1.AskTrialResponse, error) {
	return do(ctx, l, func(done func(*outbidv1.AskTrialResponse, error)) Input {
		return Ask{Sweep: sweep, Client: client, Done: done}
	})
}

// Tell records what a client measured.
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

// Ledger calls f for every batch from a sequence number to the last one.
func (l *Loop) Ledger(ctx context.Context, from uint64, f func(*outbidv1.Batch) error) error {
	return l.cfg.Ledger.Read(ctx, max(1, from), f)
}

// PublishSoup adds a stored soup to a sweep, and returns it as recorded in the ledger. Soups that the sweep no longer
// keeps are deleted.
func (l *Loop) PublishSoup(ctx context.Context, sweep string, soup *outbidv1.Soup) (*outbidv1.Soup, error) {
	return do(ctx, l, func(done func(*outbidv1.Soup, error)) Input {
		return PublishSoup{Sweep: sweep, Soup: soup, Done: done}
	})
}
