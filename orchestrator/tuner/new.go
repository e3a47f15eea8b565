package tuner

import (
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/tuner/setting"
)

// New returns the built-in tuner of a new sweep. An error names the invalid field of the spec. Package plugin starts
// tuners that are not built in.
func New(s Settings) (Tuner, error) {
	e, k, err := build(s)
	if err != nil {
		return nil, err
	}
	if e.rules, err = k.fresh(e.core); err != nil {
		return nil, err
	}
	return e, nil
}

// Restore returns a tuner in the state of a snapshot, which must have been taken with the settings s. It returns
// ErrBadSnapshot if the bytes are not such a snapshot.
func Restore(s Settings, snapshot []byte) (Tuner, error) {
	e, k, err := build(s)
	if err != nil {
		return nil, err
	}
	bare := k.bare
	if bare == nil {
		bare = k.fresh
	}
	if e.rules, err = bare(e.core); err != nil {
		return nil, err
	}
	if err := e.load(snapshot); err != nil {
		return nil, fmt.Errorf("restore tuner %s: %w", e.kind, err)
	}
	return e, nil
}

func build(s Settings) (*engine, *kind, error) {
	name := NameOf(s.Spec.GetTuner())
	k := kindOf(name)
	switch {
	case name == "":
		return nil, nil, fmt.Errorf("tuner: must be one of %s; none is set", setting.List(append(Names(), "plugin")))
	case k == nil:
		return nil, nil, fmt.Errorf("tuner.%s: not a built-in tuner", name)
	}
	c, err := newCore(s, k)
	if err != nil {
		return nil, nil, err
	}
	return &engine{core: c, kind: name}, k, nil
}
