package tuner

import (
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Settings is the part of a sweep's spec that a tuner needs: search space, constraints, mode, tuner and limits.
// spec.Check must have accepted the spec.
type Settings struct {
	Spec *outbidv1.SweepSpec
	// Memory holds results of earlier sweeps for the sampler, or is nil. An Extended has none.
	Memory *outbidv1.Memory
}

// WithDefaults returns the tuner of settings with its defaults, without the points. The settings are not changed.
func (s Settings) WithDefaults() *outbidv1.Tuner {
	t := s.Spec.GetTuner()
	all := proto.CloneOf(&outbidv1.Tuner{Kind: t.GetKind(), Seed: t.Seed}) //nolint:protogetter // absent stays absent
	Default(all)
	return all
}
