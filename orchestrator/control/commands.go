package control

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Commands queue what users ask of the loop, and wait for its answers.
type Commands struct {
	queue  *queue
	time   *timekeeper
	tuners *tunerClients
}

// Submit starts a sweep whose spec has been checked.
func (c *Commands) Submit(ctx context.Context, spec *outbidv1.SweepSpec, actor, key string) (string, error) {
	process, err := c.tuners.openTuner(ctx, spec)
	if err != nil {
		return "", err
	}
	return do(ctx, c.queue, func(done func(string, error)) Input {
		return Submit{Spec: proto.CloneOf(spec), Actor: actor, Key: key, Opened: process.status(), Done: func(id string, err error) {
			process.adopt(id, err)
			done(id, err)
		}}
	})
}

// Command pauses, resumes or stops a sweep.
func (c *Commands) Command(ctx context.Context, sweep string, cmd outbidv1.SweepCommand, actor string) error {
	_, err := do(ctx, c.queue, func(done func(struct{}, error)) Input {
		return Command{Sweep: sweep, Command: cmd, Actor: actor, Done: func(err error) { done(struct{}{}, err) }}
	})
	return err
}

// StopTrial saves and ends one trial of a sweep.
func (c *Commands) StopTrial(ctx context.Context, sweep string, trial int32, reason, actor string) error {
	_, err := do(ctx, c.queue, func(done func(struct{}, error)) Input {
		return StopTrial{Sweep: sweep, Trial: trial, Reason: reason, Actor: actor, Done: func(err error) { done(struct{}{}, err) }}
	})
	return err
}

// RetryTrial runs a failed trial of a sweep again.
func (c *Commands) RetryTrial(ctx context.Context, sweep string, trial int32, reason, actor string) error {
	_, err := do(ctx, c.queue, func(done func(struct{}, error)) Input {
		return RetryTrial{Sweep: sweep, Trial: trial, Reason: reason, Actor: actor, Done: func(err error) { done(struct{}{}, err) }}
	})
	return err
}

// Delete removes a sweep that has ended, and returns the time and the user of the deletion. It succeeds for a sweep
// that was deleted before.
func (c *Commands) Delete(ctx context.Context, sweep, actor string) (state.Deleted, error) {
	return do(ctx, c.queue, func(done func(state.Deleted, error)) Input {
		return Delete{Sweep: sweep, Actor: actor, Done: done}
	})
}

// Extend gives a sweep more trials, longer training or a wider space. It returns the trials that restart because
// their checkpoints were dropped. A preview changes nothing.
func (c *Commands) Extend(ctx context.Context, req *outbidv1.ExtendSweepRequest, actor string) ([]*outbidv1.TrainedAgain, error) {
	return do(ctx, c.queue, func(done func([]*outbidv1.TrainedAgain, error)) Input {
		return Extend{Request: req, Actor: actor, Done: done}
	})
}

// Annotate changes the description and the tags of a sweep.
func (c *Commands) Annotate(ctx context.Context, req *outbidv1.AnnotateSweepRequest, actor string) error {
	_, err := do(ctx, c.queue, func(done func(struct{}, error)) Input {
		return Annotate{Request: req, Actor: actor, Done: func(err error) { done(struct{}{}, err) }}
	})
	return err
}

// Ask requests a trial for a client of an external sweep.
func (c *Commands) Ask(ctx context.Context, sweep, client string) (*outbidv1.AskTrialResponse, error) {
	return do(ctx, c.queue, func(done func(*outbidv1.AskTrialResponse, error)) Input {
		return Ask{Sweep: sweep, Client: client, Done: done}
	})
}

// Tell records what a client measured.
func (c *Commands) Tell(ctx context.Context, req *outbidv1.TellTrialRequest) (*outbidv1.TellTrialResponse, error) {
	return do(ctx, c.queue, func(done func(*outbidv1.TellTrialResponse, error)) Input {
		now := timestamppb.New(c.time.now())
		for _, r := range req.GetReports() {
			if r.GetTime() == nil {
				r.Time = now
			}
		}
		return Tell{Request: req, Done: done}
	})
}

// PublishSoup adds a stored soup to a sweep, and returns it as recorded in the ledger. Soups that the sweep no longer
// keeps are deleted.
func (c *Commands) PublishSoup(ctx context.Context, sweep string, soup *outbidv1.Soup) (*outbidv1.Soup, error) {
	return do(ctx, c.queue, func(done func(*outbidv1.Soup, error)) Input {
		return PublishSoup{Sweep: sweep, Soup: soup, Done: done}
	})
}

// SetTenant adds or changes a tenant.
func (c *Commands) SetTenant(ctx context.Context, t *outbidv1.Tenant, add bool, actor string) error {
	_, err := do(ctx, c.queue, func(done func(struct{}, error)) Input {
		return SetTenant{Tenant: proto.CloneOf(t), Add: add, Actor: actor, Done: func(err error) { done(struct{}{}, err) }}
	})
	return err
}

// RemoveTenant removes the settings of a tenant.
func (c *Commands) RemoveTenant(ctx context.Context, tenant, actor string) error {
	_, err := do(ctx, c.queue, func(done func(struct{}, error)) Input {
		return RemoveTenant{Tenant: tenant, Actor: actor, Done: func(err error) { done(struct{}{}, err) }}
	})
	return err
}

// ControlNode cordons, drains, evicts or opens a node.
func (c *Commands) ControlNode(ctx context.Context, node string, command outbidv1.NodeCommand, reason, actor string) error {
	_, err := do(ctx, c.queue, func(done func(struct{}, error)) Input {
		return ControlNode{Node: node, Command: command, Reason: reason, Actor: actor, Done: func(err error) { done(struct{}{}, err) }}
	})
	return err
}

// BidderUp starts a new round, because a bidder has become able to answer.
func (c *Commands) BidderUp() { c.queue.put(BidderUp{}) }
