package tuner

import (
	"bytes"
	"encoding/gob"
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/tuner/sample"
)

// snapshotVersion must change when older snapshots can no longer be read.
const snapshotVersion = 1

// An image is a snapshot: the trials in columns, which compress better than records, and the state of the rules.
type image struct {
	Version int
	Kind    string
	Metric  []float64
	Bracket []int32
	Rung    []byte
	Phase   []byte
	Sampler []byte
	Dry     bool
	Rules   []byte
}

// Snapshot implements Tuner.
func (e *engine) Snapshot() ([]byte, error) {
	img := image{
		Version: snapshotVersion, Kind: e.kind.name, Dry: e.configs.dry,
		Metric: make([]float64, len(e.trials)), Bracket: make([]int32, len(e.trials)),
		Rung: make([]byte, len(e.trials)), Phase: make([]byte, len(e.trials)),
	}
	for t, r := range e.trials {
		img.Metric[t], img.Bracket[t], img.Rung[t], img.Phase[t] = r.metric, r.bracket, r.rung, byte(r.phase)
	}
	var err error
	if img.Sampler, err = e.configs.sampler.Snapshot(); err != nil {
		return nil, fmt.Errorf("snapshot of tuner %s: %w", e.kind.name, err)
	}
	state, err := e.rules.save()
	if err != nil {
		return nil, fmt.Errorf("snapshot of tuner %s: %w", e.kind.name, err)
	}
	var buf bytes.Buffer
	if err := gob.NewEncoder(&buf).Encode(state); err != nil {
		return nil, fmt.Errorf("snapshot of tuner %s: %w", e.kind.name, err)
	}
	img.Rules = bytes.Clone(buf.Bytes())
	buf.Reset()
	if err := gob.NewEncoder(&buf).Encode(img); err != nil {
		return nil, fmt.Errorf("snapshot of tuner %s: %w", e.kind.name, err)
	}
	return buf.Bytes(), nil
}

func (e *engine) load(snapshot []byte) error {
	var img image
	if err := gob.NewDecoder(bytes.NewReader(snapshot)).Decode(&img); err != nil {
		return fmt.Errorf("%w: %w", ErrBadSnapshot, err)
	}
	n := len(img.Phase)
	switch {
	case img.Version != snapshotVersion:
		return fmt.Errorf("%w: it has version %d, want %d", ErrBadSnapshot, img.Version, snapshotVersion)
	case img.Kind != e.kind.name:
		return fmt.Errorf("%w: it was taken of tuner %q", ErrBadSnapshot, img.Kind)
	case len(img.Metric) != n || len(img.Bracket) != n || len(img.Rung) != n:
		return fmt.Errorf("%w: its columns differ in length", ErrBadSnapshot)
	}
	e.trials = make([]record, n)
	for t := range e.trials {
		if phase(img.Phase[t]) > exited {
			return fmt.Errorf("%w: it has a trial with the unknown phase %d", ErrBadSnapshot, img.Phase[t])
		}
		e.trials[t] = record{img.Metric[t], img.Bracket[t], img.Rung[t], phase(img.Phase[t])}
	}
	sampler, err := sample.Restore(e.configs.space, img.Sampler)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadSnapshot, err)
	}
	e.configs.sampler, e.configs.dry = sampler, img.Dry
	decode := func(v any) error {
		if err := gob.NewDecoder(bytes.NewReader(img.Rules)).Decode(v); err != nil {
			return fmt.Errorf("%w: %w", ErrBadSnapshot, err)
		}
		return nil
	}
	return e.rules.load(decode)
}
