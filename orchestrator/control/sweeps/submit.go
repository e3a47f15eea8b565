package sweeps

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/control/tuning"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Submit starts a sweep whose spec has been checked and includes defaults, and returns its ID. opened is the status of a
// remote tuner when it was started, or nil.
func (sw *Sweeps) Submit(spec *outbidv1.SweepSpec, actor, key string, opened *outbidv1.TunerStatus) (string, error) {
	if id := sw.st.ByKey(key); id != "" {
		return id, nil
	}
	if err := sw.mayStart(spec); err != nil {
		return "", err
	}
	id := sw.st.NextID(spec.GetName())
	submitted := &outbidv1.SweepSubmitted{Sweep: id, Spec: spec, Actor: actor, IdempotencyKey: key, Memory: sw.memory(spec)}
	if tuning.IsRemote(spec) {
		if submitted.Tuner = opened; opened == nil {
			submitted.Tuner = &outbidv1.TunerStatus{}
		}
	} else if err := sw.tuning.Prepare(id, tuner.Settings{Spec: spec, Memory: submitted.GetMemory()}); err != nil {
		return "", fmt.Errorf("%w: tuner: %w", state.ErrInvalid, err)
	}
	sw.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_SweepSubmitted{SweepSubmitted: submitted}})
	return id, nil
}

// mayStart returns why a sweep may not be submitted now, or nil if it may.
func (sw *Sweeps) mayStart(spec *outbidv1.SweepSpec) error {
	if err := sw.rounds.Check(spec); err != nil {
		return err
	}
	if _, err := terms.Of(spec); err != nil {
		return fmt.Errorf("%w: %w", state.ErrInvalid, err)
	}
	if err := sw.checkDeadline(spec); err != nil {
		return err
	}
	if err := state.CheckCostLimit(spec, sw.st.DevicePrices()); err != nil {
		return err
	}
	return sw.tenants.MayBegin(spec)
}

// checkDeadline rejects a deadline that has passed.
func (sw *Sweeps) checkDeadline(s *outbidv1.SweepSpec) error {
	if _, at, _ := terms.ParseDeadline(s.GetDeadline()); !at.IsZero() && !at.After(sw.core.Now()) {
		return fmt.Errorf("%w: deadline: %s has passed; it is %s", state.ErrInvalid, s.GetDeadline(), sw.core.Now().UTC().Format(time.RFC3339))
	}
	return nil
}

// Extend gives a sweep more trials, longer training, a wider space, other limits or another weight. A sweep that has
// ended continues; it is not extended by a weight or concurrency alone. Extend returns the trials that restart because their
// checkpoints were dropped. A preview changes nothing.
func (sw *Sweeps) Extend(req *outbidv1.ExtendSweepRequest, actor string) ([]*outbidv1.TrainedAgain, error) {
	s, err := sw.st.Sweep(req.GetSweep())
	if err != nil {
		return nil, err
	}
	if s.State == outbidv1.SweepState_SWEEP_STATE_STOPPING || s.State == outbidv1.SweepState_SWEEP_STATE_FAILED {
		return nil, s.Conflict("extended", "wait until it has stopped, or submit it again")
	}
	wider, err := spec.Extend(s.Spec, req)
	if err == nil {
		err = spec.CheckSize(wider, sw.maxSpec())
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", state.ErrInvalid, err)
	}
	if proto.Equal(wider, s.Spec) {
		return nil, fmt.Errorf("%w: extend: nothing would change; give more trials, longer max_steps, a wider space, other limits or another weight", state.ErrInvalid)
	}
	if s.Done() && trainsNothingMore(s.Spec, wider) {
		return nil, s.Conflict("extended", "another weight or concurrency alone gives it nothing to train; give more trials, steps, time or cost too, "+
			"or resume it if it was stopped")
	}
	again := sw.tuning.TrainedAgain(s, wider)
	if req.GetPreview() {
		return again, nil
	}
	if s.Done() {
		if err := sw.tenants.MayBegin(wider); err != nil {
			return nil, err
		}
	}
	if err := sw.tuning.Wake(s, "extended"); err != nil {
		return nil, err
	}
	sw.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_SweepExtended{SweepExtended: &outbidv1.SweepExtended{
		Sweep: s.ID, Spec: wider, Actor: actor,
	}}})
	return again, nil
}

// trainsNothingMore reports whether an extension changes only how fast a sweep trains.
func trainsNothingMore(before, after *outbidv1.SweepSpec) bool {
	same := proto.CloneOf(before)
	spec.Default(same) // as in after
	same.Weight = after.GetWeight()
	if same.GetLimits() != nil {
		same.Limits.Concurrency = after.GetLimits().GetConcurrency()
	}
	return proto.Equal(same, after)
}

// maxSpec returns the maximum size of a sweep's spec in bytes.
func (sw *Sweeps) maxSpec() int {
	if sw.maxPayload == nil {
		return limits.Spec(math.MaxInt)
	}
	return limits.Spec(sw.maxPayload())
}
