// Package registry lists the built-in tuners and makes them from the settings of a sweep. A new tuner is a folder next
// to this one, a message in sweep.proto and a line in kinds.
package registry

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/asha"
	"github.com/outbid-dev/outbid/orchestrator/tuner/auto"
	"github.com/outbid-dev/outbid/orchestrator/tuner/bayes"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/freezethaw"
	"github.com/outbid-dev/outbid/orchestrator/tuner/grid"
	"github.com/outbid-dev/outbid/orchestrator/tuner/hyperband"
	"github.com/outbid-dev/outbid/orchestrator/tuner/median"
	"github.com/outbid-dev/outbid/orchestrator/tuner/patient"
	"github.com/outbid-dev/outbid/orchestrator/tuner/pbt"
	"github.com/outbid-dev/outbid/orchestrator/tuner/percentile"
	"github.com/outbid-dev/outbid/orchestrator/tuner/performancecurve"
	"github.com/outbid-dev/outbid/orchestrator/tuner/random"
	"github.com/outbid-dev/outbid/orchestrator/tuner/sample"
	"github.com/outbid-dev/outbid/orchestrator/tuner/setting"
	"github.com/outbid-dev/outbid/orchestrator/tuner/sobol"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	"github.com/outbid-dev/outbid/orchestrator/tuner/successivehalving"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// kinds returns all built-in tuners in the order in which errors and help name them.
func kinds() []*engine.Kind {
	return []*engine.Kind{
		random.Kind(),
		grid.Kind(),
		sobol.Kind(),
		bayes.Kind(),
		auto.Kind(),
		successivehalving.Kind(),
		hyperband.Kind(),
		asha.Kind(),
		median.Kind(),
		patient.Kind(),
		percentile.Kind(),
		performancecurve.Kind(),
		freezethaw.Kind(),
		pbt.Kind(),
	}
}

// kindOf returns the kind of a built-in tuner, or nil.
func kindOf(name string) *engine.Kind {
	all := kinds()
	if i := slices.IndexFunc(all, func(k *engine.Kind) bool { return k.Name == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// Names returns the names of the built-in tuners as written in a spec.
func Names() []string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.Name)
	}
	return names
}

// RuleNames returns the names of the tuners that can be the rule of a plugin, which draws configurations for them.
func RuleNames() []string {
	var names []string
	for _, k := range kinds() {
		if k.Rule {
			names = append(names, k.Name)
		}
	}
	return names
}

// find returns the built-in tuner that settings name. An error names the field.
func find(s tuner.Settings) (*engine.Kind, error) {
	name := tuner.NameOf(s.Spec.GetTuner())
	switch k := kindOf(name); {
	case name == "":
		return nil, fmt.Errorf("tuner: must be one of %s; none is set", setting.List(append(Names(), "plugin")))
	case k == nil:
		return nil, fmt.Errorf("tuner.%s: not a built-in tuner", name)
	default:
		return k, nil
	}
}

// New returns the built-in tuner of a new sweep. An error names the invalid field of the spec. Package plugin starts
// tuners that are not built in.
func New(s tuner.Settings) (tuner.Tuner, error) {
	k, err := find(s)
	if err != nil {
		return nil, err
	}
	return engine.New(k, s)
}

// Restore returns a tuner in the state of a snapshot, which must have been taken with the settings s. It returns
// ErrBadSnapshot if the bytes are not such a snapshot.
func Restore(s tuner.Settings, snapshot []byte) (tuner.Tuner, error) {
	k, err := find(s)
	if err != nil {
		return nil, err
	}
	return engine.Restore(k, s, snapshot)
}

// TraitsOf returns the traits of the tuner with a name.
func TraitsOf(name string) tuner.Traits {
	if k := kindOf(name); k != nil {
		return k.Traits
	}
	return tuner.Traits{}
}

// Remembers reports whether a sweep's sampler can start from the results of earlier sweeps: bayes with one objective.
func Remembers(spec *outbidv1.SweepSpec) bool {
	k := kindOf(tuner.NameOf(spec.GetTuner()))
	if k == nil || len(spec.GetObjectives()) > 0 {
		return false
	}
	return k.Name == sample.BayesName || setting.SamplerName(tuner.Settings{Spec: spec}.WithDefaults()) == sample.BayesName
}

// CheckSettings checks the settings of a tuner by their descriptions and by the tuner's own rules. s is the sweep's
// space, or nil for a plugin that does without one. An error names the field.
func CheckSettings(t *outbidv1.Tuner, s *space.Space) error {
	name := tuner.NameOf(t)
	if name == "" {
		return fmt.Errorf("tuner: is missing; set one of %s", setting.List(append(Names(), "plugin")))
	}
	return cmp.Or(kindOf(name), &engine.Kind{Name: name}).CheckSettings(t, s)
}

// Growth returns the step of the first rung and the growth factor of steps, and of the devices that a trial may use,
// from rung to rung. They are 0 if a trial's devices do not grow.
func Growth(t *outbidv1.Tuner) (rung, factor int64) {
	if k := kindOf(tuner.NameOf(t)); k != nil && k.Growth != nil {
		return k.Growth(tuner.Settings{Spec: &outbidv1.SweepSpec{Tuner: t}}.WithDefaults())
	}
	return 0, 0
}

// CheckExtension returns an error that names the field if a sweep with old settings cannot be extended to new ones.
// More trials, more steps, a larger population, more iterations and a wider space are allowed. Everything else that a
// tuner's decisions depend on must stay the same.
func CheckExtension(old, now tuner.Settings) error {
	if _, err := New(now); err != nil {
		return err
	}
	k, err := find(now)
	if err != nil {
		return err
	}
	return k.CheckExtension(old, now)
}

// PlannedTrials returns the number of trials that the settings of a tuner plan without the trial limit, or 0 if only
// limits say how many there are.
func PlannedTrials(spec *outbidv1.SweepSpec) (int32, error) {
	if k := kindOf(tuner.NameOf(spec.GetTuner())); k != nil {
		return k.PlannedTrials(spec)
	}
	return 0, nil
}

// RaiseTrials raises the settings of a tuner so that it plans at least n trials.
func RaiseTrials(spec *outbidv1.SweepSpec, n int32) error {
	if k := kindOf(tuner.NameOf(spec.GetTuner())); k != nil && k.Raise != nil {
		return k.Raise(spec, n)
	}
	return nil
}

// Rehearse runs a sweep's tuner to its end on random metrics and counts the trials and steps of each rung, for a
// preview. If the tuner creates more than limit trials, Rehearse returns the tuner's own Outlook.
func Rehearse(s tuner.Settings, limit int) (tuner.Outlook, error) {
	t, err := New(s)
	if err != nil {
		return tuner.Outlook{}, err
	}
	return engine.Rehearse(t, limit)
}
