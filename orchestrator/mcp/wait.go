package mcp

import (
	"context"
	"fmt"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// waitView is the answer of wait_for_sweep.
type waitView struct {
	answer
	Ended bool       `json:"ended" jsonschema:"whether the sweep has ended; otherwise call again to wait longer"`
	Sweep sweepView  `json:"sweep"`
	Notes []noteView `json:"notes,omitempty" jsonschema:"newest notes, oldest first"`
}

func waitTool() *tool {
	type arguments struct {
		Sweep   string
		Seconds int
	}
	return define(tool{
		name: "wait_for_sweep", title: "Wait for a sweep", waits: true,
		about: "Waits until a sweep has ended or is paused, or until the time is over, and returns its state. It does not change the sweep.",
		inputs: []input{sweepInput(), {
			name: "seconds", kind: "integer", most: 600, otherwise: 45, about: "how long to wait; the default suits clients that end calls after a minute",
		}},
	}, func(ctx context.Context, c *call, in arguments) (*waitView, error) {
		s, err := c.sweep(ctx, in.Sweep)
		if err != nil {
			return nil, err
		}
		if s, err = c.awaitEnd(ctx, s, time.Duration(in.Seconds)*time.Second); err != nil {
			return nil, err
		}
		return &waitView{Ended: hasEnded(s), Sweep: c.viewSweep(s), Notes: viewNotes(s, 5)}, nil
	})
}

// hasEnded reports whether a sweep has ended.
func hasEnded(s *outbidv1.Sweep) bool {
	switch s.GetState() {
	case outbidv1.SweepState_SWEEP_STATE_DONE, outbidv1.SweepState_SWEEP_STATE_STOPPED, outbidv1.SweepState_SWEEP_STATE_FAILED:
		return true
	}
	return false
}

// awaitEnd reads the sweep until it ends or is paused, at most for some time. It reports progress to the client.
func (c *call) awaitEnd(ctx context.Context, s *outbidv1.Sweep, most time.Duration) (*outbidv1.Sweep, error) {
	timeout := time.NewTimer(most)
	defer timeout.Stop()
	tick := time.NewTicker(c.server.poll)
	defer tick.Stop()
	told := int32(-1)
	for !hasEnded(s) && s.GetState() != outbidv1.SweepState_SWEEP_STATE_PAUSED {
		if ended := viewCounts(s.GetCounts()).ended(); ended > told {
			c.progress(ctx, float64(ended), float64(s.GetOutlook().GetTrials()),
				fmt.Sprintf("%s is %s: %s ended", s.GetId(), sweepState(s), plural(ended, "trial")))
			told = ended
		}
		select {
		case <-tick.C:
		case <-timeout.C:
			return s, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		got, err := c.API.GetSweep(ctx, &outbidv1.GetSweepRequest{Sweep: s.GetId()})
		if err != nil {
			return nil, err
		}
		s = got.GetSweep()
	}
	return s, nil
}

// progress tells the client how much is done, if it asked for that.
func (c *call) progress(ctx context.Context, done, total float64, message string) {
	token := c.request.Params.GetProgressToken()
	if token == nil {
		return
	}
	// A client that does not receive it loses nothing.
	_ = c.request.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
		ProgressToken: token, Progress: done, Total: total, Message: message,
	})
}
