package tuner

import (
	"fmt"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A maker makes the rules of one built-in tuner: for a new sweep, or bare for a snapshot to be loaded into.
type maker struct {
	fresh, bare func(*core) (rules, error)
}

// builtins is the registry: one line for each tuner in the binary.
func builtins() map[string]maker {
	return map[string]maker{
		"random":             {newRandom, newRandom},
		"grid":               {newGrid, newGrid},
		"sobol":              {newSobol, newSobol},
		"bayes":              {newBayes, newBayes},
		"successive_halving": {newSuccessiveHalving, bareSuccessiveHalving},
		"hyperband":          {newHyperband, bareHyperband},
		"asha":               {newASHA, newASHA},
		"median":             {newMedian, newMedian},
		"performance_curve":  {newPerformance, newPerformance},
		"freeze_thaw":        {newFreeze, newFreeze},
		"pbt":                {newPBT, newPBT},
	}
}

// kindOf is the name of a spec's tuner as it is written in the spec, "" if none is set.
func kindOf(t *outbidv1.Tuner) string {
	m := t.ProtoReflect()
	field := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind"))
	if field == nil {
		return ""
	}
	return string(field.Name())
}

// New starts the built-in tuner of a sweep. An error names the field of the spec that is wrong. Tuners outside the
// binary are started by package plugin.
func New(s Settings) (Tuner, error) {
	e, m, err := build(s)
	if err != nil {
		return nil, err
	}
	if e.rules, err = m.fresh(e.core); err != nil {
		return nil, err
	}
	return e, nil
}

// Restore goes on from a snapshot of a tuner with the same settings. Bytes that are no such snapshot give
// ErrBadSnapshot.
func Restore(s Settings, snapshot []byte) (Tuner, error) {
	e, m, err := build(s)
	if err != nil {
		return nil, err
	}
	if e.rules, err = m.bare(e.core); err != nil {
		return nil, err
	}
	if err := e.load(snapshot); err != nil {
		return nil, fmt.Errorf("restore tuner %s: %w", e.kind, err)
	}
	return e, nil
}

func build(s Settings) (*engine, maker, error) {
	kind := kindOf(s.Spec.GetTuner())
	m, ok := builtins()[kind]
	switch {
	case kind == "":
		return nil, maker{}, fmt.Errorf("tuner: nothing is set; name one of random, grid, sobol, bayes, successive_halving, " +
			"hyperband, asha, median, performance_curve, freeze_thaw, pbt or plugin")
	case !ok:
		return nil, maker{}, fmt.Errorf("tuner.%s: not a tuner of this binary", kind)
	}
	c, err := newCore(s)
	if err != nil {
		return nil, maker{}, err
	}
	return &engine{core: c, kind: kind}, m, nil
}
