package tuner

import (
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Settings is the part of a sweep's spec that a tuner needs: search space, constraints, mode, tuner and limits.
// spec.Check must have accepted the spec.
type Settings struct {
	Spec *outbidv1.SweepSpec
}
