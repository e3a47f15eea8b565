package engine

import (
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
)

// New returns a tuner of a kind for a new sweep. An error names the invalid field of the spec.
func New(k *Kind, s tuner.Settings) (tuner.Tuner, error) {
	e, err := build(k, s)
	if err != nil {
		return nil, err
	}
	if e.rules, err = k.Fresh(e.Core); err != nil {
		return nil, err
	}
	return e, nil
}

// Restore returns a tuner of a kind in the state of a snapshot, which must have been taken with the settings s. It
// returns ErrBadSnapshot if the bytes are not such a snapshot.
func Restore(k *Kind, s tuner.Settings, snapshot []byte) (tuner.Tuner, error) {
	e, err := build(k, s)
	if err != nil {
		return nil, err
	}
	bare := k.Bare
	if bare == nil {
		bare = k.Fresh
	}
	if e.rules, err = bare(e.Core); err != nil {
		return nil, err
	}
	if err := e.load(snapshot); err != nil {
		return nil, fmt.Errorf("restore tuner %s: %w", k.Name, err)
	}
	return e, nil
}

func build(k *Kind, s tuner.Settings) (*engine, error) {
	c, err := newCore(s, k)
	if err != nil {
		return nil, err
	}
	return &engine{Core: c, kind: k}, nil
}
