package engine

import (
	"bytes"
	"encoding/gob"
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/progress"
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
	Curves  *progress.Curves
}

// Snapshot implements Tuner.
func (e *engine) Snapshot() ([]byte, error) {
	img := image{
		Version: snapshotVersion, Kind: e.kind.Name, Dry: e.Configs.dry, Curves: e.Curves,
		Metric: make([]float64, len(e.Trials)), Bracket: make([]int32, len(e.Trials)),
		Rung: make([]byte, len(e.Trials)), Phase: make([]byte, len(e.Trials)),
	}
	for t, r := range e.Trials {
		img.Metric[t], img.Bracket[t], img.Rung[t], img.Phase[t] = r.Metric, r.Bracket, r.Rung, byte(r.Phase)
	}
	var err error
	if img.Sampler, err = e.Configs.Sampler.Snapshot(); err != nil {
		return nil, fmt.Errorf("snapshot of tuner %s: %w", e.kind.Name, err)
	}
	state, err := e.rules.Save()
	if err != nil {
		return nil, fmt.Errorf("snapshot of tuner %s: %w", e.kind.Name, err)
	}
	var buf bytes.Buffer
	if err := gob.NewEncoder(&buf).Encode(state); err != nil {
		return nil, fmt.Errorf("snapshot of tuner %s: %w", e.kind.Name, err)
	}
	img.Rules = bytes.Clone(buf.Bytes())
	buf.Reset()
	if err := gob.NewEncoder(&buf).Encode(img); err != nil {
		return nil, fmt.Errorf("snapshot of tuner %s: %w", e.kind.Name, err)
	}
	return buf.Bytes(), nil
}

func (e *engine) load(snapshot []byte) error {
	var img image
	if err := gob.NewDecoder(bytes.NewReader(snapshot)).Decode(&img); err != nil {
		return fmt.Errorf("%w: %w", tuner.ErrBadSnapshot, err)
	}
	n := len(img.Phase)
	switch {
	case img.Version != snapshotVersion:
		return fmt.Errorf("%w: it has version %d, want %d", tuner.ErrBadSnapshot, img.Version, snapshotVersion)
	case img.Kind != e.kind.Name:
		return fmt.Errorf("%w: it was taken of tuner %q", tuner.ErrBadSnapshot, img.Kind)
	case len(img.Metric) != n || len(img.Bracket) != n || len(img.Rung) != n:
		return fmt.Errorf("%w: its columns differ in length", tuner.ErrBadSnapshot)
	}
	e.Trials = make([]Record, n)
	for t := range e.Trials {
		if Phase(img.Phase[t]) > Exited {
			return fmt.Errorf("%w: it has a trial with the unknown phase %d", tuner.ErrBadSnapshot, img.Phase[t])
		}
		e.Trials[t] = Record{img.Metric[t], img.Bracket[t], img.Rung[t], Phase(img.Phase[t])}
	}
	sampler, err := sample.Restore(e.Configs.Space, img.Sampler)
	if err != nil {
		return fmt.Errorf("%w: %w", tuner.ErrBadSnapshot, err)
	}
	e.Configs.use(sampler)
	e.Configs.dry = img.Dry
	if e.Curves != nil && img.Curves != nil {
		e.Curves = img.Curves
	}
	decode := func(v any) error {
		if err := gob.NewDecoder(bytes.NewReader(img.Rules)).Decode(v); err != nil {
			return fmt.Errorf("%w: %w", tuner.ErrBadSnapshot, err)
		}
		return nil
	}
	return e.rules.Load(decode)
}
