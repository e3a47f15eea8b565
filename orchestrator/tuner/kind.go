package tuner

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/tuner/sample"
	"github.com/outbid-dev/outbid/orchestrator/tuner/setting"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A kind describes a built-in tuner to this package and, by its traits, to others. Only the tuner's own files name it.
// Defaults, bounds and documentation of its settings are options and comments of its message in sweep.proto.
type kind struct {
	// name is the field of the message Tuner.
	name string
	// fresh makes the rules of a new sweep, bare those to load a snapshot into; nil if fresh does both.
	fresh, bare func(*core) (rules, error)
	// check checks rules between several settings, or between settings and the space. t has its defaults. It is nil if
	// there are none.
	check func(t *outbidv1.Tuner, s *space.Space) error
	// sampler returns the source of configurations; nil for the one that the setting "sampler" names, or random draws.
	sampler func(t *outbidv1.Tuner, s *space.Space) (sample.Sampler, error)
	// raise raises the number of trials that the settings plan to n, for an extension. It is nil for a tuner that makes
	// as many trials as limits.trials allows.
	raise func(spec *outbidv1.SweepSpec, n int32) error
	// growth returns the step of the first rung and the factor by which steps and devices grow from rung to rung, or
	// zeros if this tuner's settings do not let devices grow. It is nil for a tuner that never does.
	growth func(t *outbidv1.Tuner) (rung, factor int64)
	// rule is set if a plugin may draw the tuner's configurations.
	rule bool
	Traits
}

// Traits are what other packages need to know of a kind of tuner. A plugin has none of them.
type Traits struct {
	// Endless tuners create trials until a limit ends the sweep.
	Endless bool
	// Independent trials are all trained to the end, and none waits for another.
	Independent bool
	// Rungs says how trials pass from rung to rung.
	Rungs Rungs
	// Forecasts is set if trials' total steps are forecasts, which may be below the maximum.
	Forecasts bool
	// Copies is set if trials copy each other's checkpoints.
	Copies bool
}

// Rungs says how the trials of a tuner pass from rung to rung.
type Rungs int

const (
	// NoRungs means that trials train to the end, or are stopped on the way.
	NoRungs Rungs = iota
	// Phases means that all trials are in the same rung, which is decided when they have reached it.
	Phases
	// BracketRungs is like Phases within each of several brackets.
	BracketRungs
	// AsynchronousRungs means that a trial continues as soon as it is among the best so far.
	AsynchronousRungs
)

// kinds returns all built-in tuners in the order in which errors and help name them.
func kinds() []*kind {
	return []*kind{
		randomKind(),
		gridKind(),
		sobolKind(),
		bayesKind(),
		successiveHalvingKind(),
		hyperbandKind(),
		ashaKind(),
		medianKind(),
		patientKind(),
		performanceKind(),
		freezeKind(),
		pbtKind(),
	}
}

// kindOf returns the kind of a built-in tuner, or nil.
func kindOf(name string) *kind {
	all := kinds()
	if i := slices.IndexFunc(all, func(k *kind) bool { return k.name == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// Names returns the names of the built-in tuners as written in a spec.
func Names() []string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return names
}

// RuleNames returns the names of the tuners that can be the rule of a plugin, which draws configurations for them.
func RuleNames() []string {
	var names []string
	for _, k := range kinds() {
		if k.rule {
			names = append(names, k.name)
		}
	}
	return names
}

// NameOf returns a tuner's name as written in a spec, such as "asha", or "" if none is set.
func NameOf(t *outbidv1.Tuner) string {
	_, name := setting.Tuner(t)
	return name
}

// TraitsOf returns the traits of the tuner with a name.
func TraitsOf(name string) Traits {
	if k := kindOf(name); k != nil {
		return k.Traits
	}
	return Traits{}
}

// MaxSteps returns the maximum number of steps of one trial, or 0 if the training code decides when to end.
func MaxSteps(t *outbidv1.Tuner) int64 {
	m, name := setting.Tuner(t)
	if name == "" {
		return 0
	}
	return setting.Int(m, setting.Steps)
}

// Default fills in the settings of a tuner that are not set. Some defaults depend on max_steps but do not change if
// max_steps is raised later; those are not set.
func Default(t *outbidv1.Tuner) {
	if m, name := setting.Tuner(t); name != "" && m.IsValid() {
		setting.Default(m)
	}
}

// CheckSettings checks the settings of a tuner by their descriptions and by the tuner's own rules. s is the sweep's
// space, or nil for a plugin that does without one. An error names the field.
func CheckSettings(t *outbidv1.Tuner, s *space.Space) error {
	m, name := setting.Tuner(t)
	if name == "" {
		return fmt.Errorf("tuner: is missing; set one of %s", setting.List(append(Names(), "plugin")))
	}
	if err := setting.Check(m); err != nil {
		return fmt.Errorf("tuner.%s.%w", name, err)
	}
	if k := kindOf(name); k != nil && k.check != nil {
		return k.check(t, s)
	}
	return nil
}

// Growth returns the step of the first rung and the factor by which steps, and the devices that a trial may use, grow
// from rung to rung. They are 0 if a trial's devices do not grow.
func Growth(t *outbidv1.Tuner) (rung, factor int64) {
	if k := kindOf(NameOf(t)); k != nil && k.growth != nil {
		return k.growth(Settings{Spec: &outbidv1.SweepSpec{Tuner: t}}.withDefaults())
	}
	return 0, 0
}

// withDefaults returns the tuner of settings with its defaults, without the points. The settings are not changed.
func (s Settings) withDefaults() *outbidv1.Tuner {
	t := s.Spec.GetTuner()
	all := proto.CloneOf(&outbidv1.Tuner{Kind: t.GetKind(), Seed: t.Seed}) //nolint:protogetter // absent stays absent
	Default(all)
	return all
}
