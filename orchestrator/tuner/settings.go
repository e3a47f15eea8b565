package tuner

import (
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Settings is what a tuner needs to know of a sweep: the spec's search space, constraints, mode, tuner and limits.
// A valid spec has been through spec.Check.
type Settings struct {
	Spec *outbidv1.SweepSpec
}
