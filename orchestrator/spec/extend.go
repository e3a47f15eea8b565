package spec

import (
	"errors"
	"math"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/setting"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Extend returns the spec of a sweep with more trials, more steps, a wider space, other limits or another weight; old is
// not changed.
// It returns an error if something would become fewer, shorter or narrower, or if the request sets nothing. Check must
// accept old.
//
// More trials mean a higher limits.trials. For successive halving they are also the trials of the first rung, for
// hyperband as many iterations as needed, and for pbt the population.
func Extend(old *outbidv1.SweepSpec, req *outbidv1.ExtendSweepRequest) (*outbidv1.SweepSpec, error) {
	if req.Trials == nil && req.MaxSteps == nil && len(req.GetSpace()) == 0 && proto.Size(req.GetLimits()) == 0 && req.Weight == nil {
		return nil, wrong("", "the extension is empty; set more trials, a higher max_steps, a wider space, other limits or another weight")
	}
	s := proto.CloneOf(old)
	Default(s)
	for _, apply := range []func(s *outbidv1.SweepSpec, req *outbidv1.ExtendSweepRequest) error{
		extendLimits, extendSteps, extendTrials, extendSpace, extendWeight,
	} {
		if err := apply(s, req); err != nil {
			return nil, err
		}
	}
	if err := Check(s); err != nil {
		return nil, err
	}
	before, after := old, s
	if own := s.GetTuner().GetPlugin(); own != nil {
		if own.GetRule() == nil {
			return s, nil
		}
		before, after = tuner.RuleSpec(old), tuner.RuleSpec(s)
	}
	if err := registry.CheckExtension(tuner.Settings{Spec: before}, tuner.Settings{Spec: after}); err != nil {
		return nil, fromTuner(err)
	}
	return s, nil
}

// fromTuner converts an error of a tuner, which begins with the field, to one of the spec.
func fromTuner(err error) error {
	if _, ok := errors.AsType[*space.Error](err); ok {
		return fromSpace(err)
	}
	field, problem, ok := strings.Cut(err.Error(), ": ")
	if !ok || strings.Contains(field, " ") {
		return wrong("tuner", "%v", err)
	}
	return wrong(field, "%s", problem)
}

func extendLimits(s *outbidv1.SweepSpec, req *outbidv1.ExtendSweepRequest) error {
	l := req.GetLimits()
	if t := l.GetTrials(); t != 0 && req.Trials != nil && t != req.GetTrials() {
		return wrong("limits.trials", "%d differs from trials (%d); set only one of them", t, req.GetTrials())
	}
	switch {
	case l.GetConcurrency() < 0:
		return wrong("limits.concurrency", "%d is negative", l.GetConcurrency())
	case l.GetConcurrency() > 0:
		s.Limits.Concurrency = l.GetConcurrency()
	}
	if l.GetSteps() != 0 {
		if was := s.GetLimits().GetSteps(); was == 0 || l.GetSteps() < was {
			return narrower("limits.steps", l.GetSteps(), was)
		}
		s.Limits.Steps = l.GetSteps()
	}
	if l.GetWallTime() != "" {
		if err := checkDuration("limits.wall_time", l.GetWallTime()); err != nil {
			return err
		}
		if !longer(l.GetWallTime(), s.GetLimits().GetWallTime()) {
			return narrower("limits.wall_time", l.GetWallTime(), s.GetLimits().GetWallTime())
		}
		s.Limits.WallTime = l.GetWallTime()
	}
	if l.GetDeviceHours() != 0 {
		if was := s.GetLimits().GetDeviceHours(); was == 0 || !(l.GetDeviceHours() >= was) {
			return narrower("limits.device_hours", l.GetDeviceHours(), was)
		}
		s.Limits.DeviceHours = l.GetDeviceHours()
	}
	if l.GetCost() != 0 {
		if was := s.GetLimits().GetCost(); was == 0 || !(l.GetCost() >= was) {
			return narrower("limits.cost", l.GetCost(), was)
		}
		s.Limits.Cost = l.GetCost()
	}
	if l != nil && l.Target != nil {
		s.Limits.Target = new(l.GetTarget())
	}
	return nil
}

// longer reports whether now is at least was. An empty was means no limit, so nothing is longer.
func longer(now, was string) bool {
	a, err := terms.ParseDuration(now)
	if err != nil {
		return false
	}
	b, err := terms.ParseDuration(was)
	return err == nil && a >= b
}

// narrower returns the error for a value that an extension would lower.
func narrower[T comparable](field string, now, was T) error {
	var none T
	if was == none {
		return wrong(field, "%v would add a limit; an extension can only raise an existing one", now)
	}
	return wrong(field, "%v is less than before (%v); an extension can only raise it", now, was)
}

func extendSteps(s *outbidv1.SweepSpec, req *outbidv1.ExtendSweepRequest) error {
	if req.MaxSteps == nil {
		return nil
	}
	settings, _ := setting.Tuner(s.GetTuner())
	was := setting.Int(settings, setting.Steps)
	if was == 0 {
		return wrong("max_steps", "%d would add a limit; the trials of this sweep train until their code ends", req.GetMaxSteps())
	}
	if req.GetMaxSteps() < was {
		return narrower("max_steps", req.GetMaxSteps(), was)
	}
	settings.Set(settings.Descriptor().Fields().ByName(setting.Steps), protoreflect.ValueOfInt64(req.GetMaxSteps()))
	return nil
}

func extendTrials(s *outbidv1.SweepSpec, req *outbidv1.ExtendSweepRequest) error {
	field, n := "trials", req.GetTrials()
	if req.Trials == nil {
		if n = req.GetLimits().GetTrials(); n == 0 {
			return nil
		}
		field = "limits.trials"
	}
	was, err := plannedTrials(s)
	if err != nil {
		return err
	}
	if was == 0 || n < was {
		return narrower(field, n, was)
	}
	if limit := s.GetLimits().GetTrials(); limit > 0 {
		s.Limits.Trials = max(n, limit)
	}
	if err := registry.RaiseTrials(s, n); err != nil {
		return fromTuner(err)
	}
	return nil
}

// plannedTrials returns the total number of trials of a sweep, or 0 if it is unbounded.
func plannedTrials(s *outbidv1.SweepSpec) (int32, error) {
	if limit := s.GetLimits().GetTrials(); limit > 0 {
		return limit, nil
	}
	n, err := registry.PlannedTrials(s)
	if err != nil {
		return 0, fromTuner(err)
	}
	return n, nil
}

func extendSpace(s *outbidv1.SweepSpec, req *outbidv1.ExtendSweepRequest) error {
	if len(req.GetSpace()) == 0 {
		return nil
	}
	old, err := space.Compile(s.GetSpace(), s.GetConstraints())
	if err != nil {
		return fromSpace(err)
	}
	for _, name := range sortedKeys(req.GetSpace()) {
		if _, known := s.GetSpace()[name]; !known {
			return wrong("space."+name, "is not a parameter of the sweep, and an extension cannot add one; the parameters are %s",
				strings.Join(sortedKeys(s.GetSpace()), ", "))
		}
		s.Space[name] = req.GetSpace()[name]
	}
	wider, err := space.Compile(s.GetSpace(), s.GetConstraints())
	if err != nil {
		return fromSpace(err)
	}
	if err := wider.Contains(old); err != nil {
		return fromSpace(err)
	}
	return nil
}

// extendWeight sets another weight, which may be lower.
func extendWeight(s *outbidv1.SweepSpec, req *outbidv1.ExtendSweepRequest) error {
	if req.Weight == nil {
		return nil
	}
	if w := req.GetWeight(); !(w > 0) || math.IsInf(w, 0) {
		return wrong("weight", "must be a number above 0, got %v; 1 is usual", w)
	}
	s.Weight = req.GetWeight()
	return nil
}
