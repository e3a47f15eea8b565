package tuner

import "fmt"

// newOf returns a tuner of a kind for a new sweep. An error names the invalid field of the spec.
func newOf(k *kind, s Settings) (Tuner, error) {
	e, err := build(k, s)
	if err != nil {
		return nil, err
	}
	if e.rules, err = k.fresh(e.core); err != nil {
		return nil, err
	}
	return e, nil
}

// restoreOf returns a tuner of a kind in the state of a snapshot, which must have been taken with the settings s. It
// returns ErrBadSnapshot if the bytes are not such a snapshot.
func restoreOf(k *kind, s Settings, snapshot []byte) (Tuner, error) {
	e, err := build(k, s)
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
		return nil, fmt.Errorf("restore tuner %s: %w", k.name, err)
	}
	return e, nil
}

func build(k *kind, s Settings) (*engine, error) {
	c, err := newCore(s, k)
	if err != nil {
		return nil, err
	}
	return &engine{core: c, kind: k}, nil
}
