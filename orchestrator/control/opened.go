package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control/tuning"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// opened is the process of a remote tuner at a place.
type opened struct {
	clients *tunerClients
	process tuner.Tuner
	place   *place
}

// open waits for a place and starts a tuner's process there.
func (t *tunerClients) open(ctx context.Context, settings tuner.Settings, snapshot []byte) (*opened, error) {
	at, err := t.samplers.enter(ctx, state.TenantOf(settings.Spec))
	if err != nil {
		return nil, err
	}
	process, err := t.newTuner(settings, snapshot)
	if err != nil {
		at.leave()
		return nil, err
	}
	return &opened{t, process, at}, nil
}

// end ends the process and leaves its place.
func (o *opened) end() {
	if o != nil {
		closeTuner(o.process)
		o.place.leave()
	}
}

// openPatience is how long a submission waits for a place for its tuner.
const openPatience = 30 * time.Second

// openTuner starts the tuner of a sweep that is being submitted if it is remote. Only the submitting call waits.
func (t *tunerClients) openTuner(ctx context.Context, spec *outbidv1.SweepSpec) (*opened, error) {
	if !tuning.IsRemote(spec) {
		return nil, nil //nolint:nilnil // most tuners are not programs
	}
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	o, err := t.open(ctx, tuner.Settings{Spec: spec}, nil)
	switch tenant := state.TenantOf(spec); {
	case errors.Is(err, context.DeadlineExceeded) && t.samplers.held(tenant) > 0:
		return nil, &state.LimitError{
			Limit: "samplers", Tenant: tenant, RetryAfter: openPatience,
			Text: fmt.Sprintf("all tuner processes of tenant %s are in use", tenant),
		}
	case err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: tuner: %w", state.ErrInvalid, err)
	}
	return o, nil
}

// status returns the status of the process, or nil if o is nil.
func (o *opened) status() *outbidv1.TunerStatus {
	if o == nil {
		return nil
	}
	s := o.process.Status()
	return &outbidv1.TunerStatus{Waiting: s.Waiting, Exhausted: s.Exhausted, Outlook: o.process.Outlook().Message()}
}

// adopt makes the process the tuner of a sweep that was submitted, or ends it if the sweep has another one or was
// refused. The loop calls it.
func (o *opened) adopt(id string, err error) {
	if o == nil {
		return
	}
	of := o.clients.remote(id)
	if err != nil || of == nil || o.clients.clients[id] != nil || !of.Fresh() {
		go o.end()
		return
	}
	o.clients.startClient(id, of.Start(), o)
}
