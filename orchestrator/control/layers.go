package control

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// The fields of the lists in a snapshot: sweeps of a StateSnapshot, and trials of a SweepRecord.
const (
	snapshotSweeps = 8
	sweepTrials    = 9
)

// layers is a snapshot whose records of trials are encoded, so that changes can replace some of them.
type layers struct {
	// head is the snapshot without sweeps.
	head   *outbidv1.StateSnapshot
	sweeps []sweepLayer
}

// sweepLayer is a sweep of a snapshot: its record without trials, the encoded record, and the encoded trials.
type sweepLayer struct {
	record  *outbidv1.SweepRecord
	encoded []byte
	trials  [][]byte
}

// layersOf splits an encoded snapshot, of the whole state or of changes.
func layersOf(data []byte) (*layers, error) {
	rest, sweeps, err := splitField(data, snapshotSweeps)
	l := &layers{head: new(outbidv1.StateSnapshot), sweeps: make([]sweepLayer, len(sweeps))}
	if err == nil {
		err = proto.Unmarshal(rest, l.head)
	}
	if err != nil {
		return nil, fmt.Errorf("decoding the snapshot: %w", err)
	}
	for i, encoded := range sweeps {
		s := sweepLayer{record: new(outbidv1.SweepRecord)}
		if s.encoded, s.trials, err = splitField(encoded, sweepTrials); err == nil {
			err = proto.Unmarshal(s.encoded, s.record)
		}
		if err != nil {
			return nil, fmt.Errorf("decoding the snapshot: sweep %d: %w", i, err)
		}
		l.sweeps[i] = s
	}
	return l, nil
}

// errNotNext is returned for changes since another state.
var errNotNext = errors.New("these are changes since another state")

// apply adds the changes since this snapshot. After another error than errNotNext neither must be used.
func (l *layers) apply(next *layers) error {
	changes := next.head.GetChanges()
	if changes == nil || changes.GetSince() != l.head.GetSeq() || !bytes.Equal(changes.GetHash(), l.head.GetHash()) {
		return errNotNext
	}
	if len(changes.GetSweeps()) != len(next.sweeps) {
		return fmt.Errorf("changes of %d sweeps describe %d", len(next.sweeps), len(changes.GetSweeps()))
	}
	before := make(map[string]sweepLayer, len(l.sweeps))
	for _, s := range l.sweeps {
		before[s.record.GetId()] = s
	}
	for i, c := range changes.GetSweeps() {
		s := &next.sweeps[i]
		was, known := before[s.record.GetId()]
		if c.GetUnchanged() {
			if !known {
				return fmt.Errorf("sweep %s is unchanged, but was not there before", s.record.GetId())
			}
			*s = was
			continue
		}
		var err error
		if s.trials, err = replaced(was.trials, c.GetTrials(), s.trials); err != nil {
			return fmt.Errorf("changes of sweep %s: %w", s.record.GetId(), err)
		}
	}
	next.head.Changes = nil
	*l = *next
	return nil
}

// replaced replaces and adds trials by number.
func replaced(all [][]byte, numbers []int32, trials [][]byte) ([][]byte, error) {
	if len(numbers) != len(trials) {
		return nil, fmt.Errorf("%d trials have %d numbers", len(trials), len(numbers))
	}
	for i, n := range numbers {
		switch {
		case n >= 0 && int(n) < len(all):
			all[n] = trials[i]
		case int(n) == len(all):
			all = append(all, trials[i])
		default:
			return nil, fmt.Errorf("trial %d follows %d trials", n, len(all))
		}
	}
	return all, nil
}

// encode returns the snapshot in the format that layersOf and older versions read.
func (l *layers) encode() ([]byte, error) {
	head, err := proto.MarshalOptions{Deterministic: true}.Marshal(l.head)
	if err != nil {
		return nil, err
	}
	size := len(head)
	sizes := make([]int, len(l.sweeps))
	for i, s := range l.sweeps {
		sizes[i] = len(s.encoded)
		for _, t := range s.trials {
			sizes[i] += protowire.SizeTag(sweepTrials) + protowire.SizeBytes(len(t))
		}
		size += protowire.SizeTag(snapshotSweeps) + protowire.SizeBytes(sizes[i])
	}
	out := append(make([]byte, 0, size), head...)
	for i, s := range l.sweeps {
		out = protowire.AppendVarint(protowire.AppendTag(out, snapshotSweeps, protowire.BytesType), uint64(sizes[i]))
		out = append(out, s.encoded...)
		for _, t := range s.trials {
			out = protowire.AppendBytes(protowire.AppendTag(out, sweepTrials, protowire.BytesType), t)
		}
	}
	return out, nil
}

// decode decodes the trials. The trials of each sweep are returned in the order of the sweeps, and left out of the
// message.
func (l *layers) decode() (*outbidv1.StateSnapshot, [][]state.RestoredTrial, error) {
	all := make([][]state.RestoredTrial, len(l.sweeps))
	for i, s := range l.sweeps {
		var err error
		if all[i], err = decodeTrials(s.trials); err != nil {
			return nil, nil, fmt.Errorf("decoding the snapshot: sweep %d: %w", i, err)
		}
		l.head.Sweeps = append(l.head.Sweeps, s.record)
	}
	return l.head, all, nil
}

// Merge returns a snapshot with the changes since then. It returns the snapshot's last batch.
func Merge(whole []byte, changes ...[]byte) (seq uint64, merged []byte, err error) {
	l, err := layersOf(whole)
	if err != nil {
		return 0, nil, err
	}
	for _, data := range changes {
		next, err := layersOf(data)
		if err == nil {
			err = l.apply(next)
		}
		if err != nil {
			return 0, nil, err
		}
	}
	merged, err = l.encode()
	return l.head.GetSeq(), merged, err
}
