package tuner

import (
	"fmt"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A maker makes the rules of one built-in tuner: fresh for a new sweep, bare to load a snapshot into.
type maker struct {
	fresh, bare func(*core) (rules, error)
}

// builtins lists the built-in tuners by name.
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

// kindOf returns the name of a spec's tuner as written in the spec, or "" if none is set.
func kindOf(t *outbidv1.Tuner) string {
	m := t.ProtoReflect()
	field := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind"))
	if field == nil {
		return ""
	}
	return string(field.Name())
}

// New returns the built-in tuner of a new sweep. An error names the invalid field of the spec. Package plugin starts
// tuners that are not built in.
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

// Restore returns a tuner in the state of a snapshot, which must have been taken with the settings s. It returns
// ErrBadSnapshot if the bytes are not such a snapshot.
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
		return nil, maker{}, fmt.Errorf("tuner: must be one of random, grid, sobol, bayes, successive_halving, " +
			"hyperband, asha, median, performance_curve, freeze_thaw, pbt or plugin; none is set")
	case !ok:
		return nil, maker{}, fmt.Errorf("tuner.%s: not a built-in tuner", kind)
	}
	c, err := newCore(s)
	if err != nil {
		return nil, maker{}, err
	}
	return &engine{core: c, kind: kind}, m, nil
}
