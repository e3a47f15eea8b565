package terms

import (
	"cmp"
	"fmt"
	"math"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// These are the shapes of a utility.
const (
	// Sigmoid is Worth / (1 + exp(Decay * (t - By))).
	Sigmoid = "sigmoid"
	// Step is Worth up to By, then 0.
	Step = "step"
	// Linear is Worth up to By, and then loses the fraction Decay of it each second, down to 0.
	Linear = "linear"
)

// Utility is the worth of finishing a trial t seconds after it was created. It never increases.
type Utility struct {
	Kind string
	// Worth is the maximum, By is in seconds, Decay is per second.
	Worth, By, Decay float64
}

// Value returns the worth of finishing a trial this many seconds after it was created.
func (u *Utility) Value(seconds float64) float64 {
	switch late := seconds - u.By; u.Kind {
	case Step:
		if late > 0 {
			return 0
		}
		return u.Worth
	case Linear:
		return u.Worth * (1 - min(1, u.Decay*max(0, late)))
	default:
		return u.Worth / (1 + math.Exp(u.Decay*late))
	}
}

// UtilityOf reads a utility, or returns nil for nil. An error names the field.
//
// 1.0.0-rc.1 has the older names priority and target in its API and its SDK, so they stay.
func UtilityOf(u *outbidv1.Utility) (*Utility, error) {
	if u == nil {
		return nil, nil //nolint:nilnil // the utility is not set
	}
	for _, number := range []struct {
		name  string
		value float64
	}{{"worth", u.GetWorth()}, {"priority", u.GetPriority()}, {"decay", u.GetDecay()}, {"target", u.GetTarget()}} {
		if math.IsNaN(number.value) || math.IsInf(number.value, 0) || number.value < 0 {
			return nil, fmt.Errorf("utility.%s: must be a finite number of at least 0, got %v", number.name, number.value)
		}
	}
	out := &Utility{Kind: cmp.Or(u.GetKind(), Sigmoid), Worth: cmp.Or(u.GetWorth(), u.GetPriority()), By: u.GetTarget(), Decay: u.GetDecay()}
	switch {
	case u.GetWorth() > 0 && u.GetPriority() > 0:
		return nil, fmt.Errorf("utility.priority: is the older name of worth; set only worth")
	case u.GetBy() != "" && u.GetTarget() > 0:
		return nil, fmt.Errorf("utility.target: is the older name of by, in seconds; set only by")
	}
	if u.GetBy() != "" {
		by, err := ParseDuration(u.GetBy())
		if err != nil {
			return nil, fmt.Errorf("utility.by: %w", err)
		}
		out.By = by.Seconds()
	}
	if err := out.check(); err != nil {
		return nil, err
	}
	return out, nil
}

// check returns an error for the first field that does not match the shape.
func (u *Utility) check() error {
	switch {
	case u.Kind != Sigmoid && u.Kind != Step && u.Kind != Linear:
		return fmt.Errorf("utility.kind: %q is unknown; use step, sigmoid or linear", u.Kind)
	case u.Kind == Step && u.By == 0:
		return fmt.Errorf("utility.by: is missing; set the time after which a step has no worth, such as 2h")
	case u.Kind == Step && u.Decay > 0:
		return fmt.Errorf("utility.decay: has no effect on a step, got %v; leave it out, or use linear or sigmoid", u.Decay)
	case u.Kind == Linear && u.Decay == 0:
		return fmt.Errorf("utility.decay: is missing; set the fraction of a linear utility that is lost each second, such as 0.001")
	}
	return nil
}

// ParseDeadline reads a deadline: a time such as "2026-12-01T18:00:00Z", or a duration after the submission, such as
// "6h". Both results are zero for "".
func ParseDeadline(text string) (in time.Duration, at time.Time, err error) {
	if text == "" {
		return 0, time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return 0, at, nil
	}
	if in, err = ParseDuration(text); err == nil && in > 0 {
		return in, time.Time{}, nil
	}
	return 0, time.Time{}, fmt.Errorf("%q must be a time such as 2026-12-01T18:00:00Z, or a duration such as 6h", text)
}

// Deadline returns the time when a sweep submitted at a time should be done, or zero if it has no deadline.
func (t *Terms) Deadline(submitted time.Time) time.Time {
	if t.DeadlineIn > 0 {
		return submitted.Add(t.DeadlineIn)
	}
	return t.DeadlineAt
}
