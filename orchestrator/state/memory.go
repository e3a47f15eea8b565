package state

import (
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// summary returns a memory without its points.
func summary(m *outbidv1.Memory) *outbidv1.Memory {
	if m == nil {
		return nil
	}
	short := &outbidv1.Memory{}
	for _, s := range m.GetSweeps() {
		short.Sweeps = append(short.Sweeps, &outbidv1.RememberedSweep{Sweep: s.GetSweep(), Trials: s.GetTrials()})
	}
	return short
}

// sameSpace reports whether two specs have the same parameters and constraints.
func sameSpace(a, b *outbidv1.SweepSpec) bool {
	return proto.Equal(
		&outbidv1.SweepSpec{Space: a.GetSpace(), Constraints: a.GetConstraints()},
		&outbidv1.SweepSpec{Space: b.GetSpace(), Constraints: b.GetConstraints()},
	)
}
