package control

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A damaged snapshot is refused exactly if it cannot be decoded as one message, and each sweep has its own trials.
func TestDecodeSnapshot(t *testing.T) {
	t.Parallel()
	whole := &outbidv1.StateSnapshot{Seq: 7, Hash: []byte("hash")}
	for sweep := range 3 {
		r := &outbidv1.SweepRecord{Id: "s", Reason: "why"}
		for trial := range 2 * sweep {
			r.Trials = append(r.Trials, &outbidv1.TrialRecord{
				Trial: &outbidv1.Trial{Number: int32(trial), ConfigJson: "{}"}, Held: []*outbidv1.LeaseRecord{{LeaseId: 3}},
			})
		}
		whole.Sweeps = append(whole.Sweeps, r)
	}
	data, err := proto.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	for n := range data {
		_, _, got := decodeAll(data[:n])
		if want := proto.Unmarshal(data[:n], new(outbidv1.StateSnapshot)); (got == nil) != (want == nil) {
			t.Errorf("the first %d of %d bytes: %v, want %v", n, len(data), got, want)
		}
	}
	snap, trials, err := decodeAll(data)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range whole.GetSweeps() {
		if len(trials[i]) != len(r.GetTrials()) {
			t.Errorf("sweep %d has %d trials, want %d", i, len(trials[i]), len(r.GetTrials()))
		}
		r.Trials = nil
	}
	if !proto.Equal(snap, whole) {
		t.Errorf("decoded %v, want %v", snap, whole)
	}
}

func decodeAll(data []byte) (*outbidv1.StateSnapshot, [][]state.RestoredTrial, error) {
	l, err := layersOf(data)
	if err != nil {
		return nil, nil, err
	}
	return l.decode()
}
