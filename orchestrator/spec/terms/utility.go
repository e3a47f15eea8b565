package terms

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Shapes of a utility.
const (
	// Sigmoid is Worth / (1 + exp(Decay * (t - By))).
	Sigmoid = "sigmoid"
	// Step is Worth up to By, then nothing.
	Step = "step"
	// Linear is Worth up to By, then loses Decay of it a second, down to nothing.
	Linear = "linear"
)

// Utility is what the end of a trial is worth t seconds after it was created. It never rises.
type Utility struct {
	Kind string
	// Worth at its most; By in seconds; Decay per second.
	Worth, By, Decay float64
}

// Value is the worth of an end so many seconds after the trial was created.
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

// UtilityOf reads a utility; nil for none. An error names the field.
func UtilityOf(u *outbidv1.Utility) (*Utility, error) {
	if u == nil {
		return nil, nil //nolint:nilnil // none was said
	}
	for _, number := range []struct {
		name  string
		value float64
	}{{"worth", u.GetWorth()}, {"priority", u.GetPriority()}, {"decay", u.GetDecay()}, {"target", u.GetTarget()}} {
		if math.IsNaN(number.value) || math.IsInf(number.value, 0) || number.value < 0 {
			return nil, fmt.Errorf("utility.%s: %v is not a finite number from 0 on", number.name, number.value)
		}
	}
	out := &Utility{Kind: cmp.Or(u.GetKind(), Sigmoid), Worth: cmp.Or(u.GetWorth(), u.GetPriority()), By: u.GetTarget(), Decay: u.GetDecay()}
	switch {
	case u.GetWorth() > 0 && u.GetPriority() > 0:
		return nil, fmt.Errorf("utility.priority: is the older name of worth; give only worth")
	case u.GetBy() != "" && u.GetTarget() > 0:
		return nil, fmt.Errorf("utility.target: is the older name of by, in seconds; give only by")
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

// check names the first field that does not go with the shape.
func (u *Utility) check() error {
	switch {
	case u.Kind != Sigmoid && u.Kind != Step && u.Kind != Linear:
		return fmt.Errorf("utility.kind: %q is unknown; use step, sigmoid or linear", u.Kind)
	case u.Kind == Step && u.By == 0:
		return fmt.Errorf("utility.by: is missing; a step says when its worth is gone, such as 2h")
	case u.Kind == Step && u.Decay > 0:
		return fmt.Errorf("utility.decay: %v: a step has none; leave it out, or use linear or sigmoid", u.Decay)
	case u.Kind == Linear && u.Decay == 0:
		return fmt.Errorf("utility.decay: is missing; a linear utility says which part of its worth is lost a second, such as 0.001")
	}
	return nil
}

// labelledUtility is what versions before the field took from labels of these names; nil if there is none.
func labelledUtility(labels map[string]string) *Utility {
	number := func(name string) (float64, bool) {
		f, err := strconv.ParseFloat(labels["utility."+name], 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return 0, false
		}
		return f, true
	}
	priority, ok := number("priority")
	if !ok || priority < 0 {
		return nil
	}
	u := &Utility{Kind: Sigmoid, Worth: priority}
	u.Decay, _ = number("decay")
	u.By, _ = number("target")
	return u
}

// ParseDeadline reads a deadline: a time such as "2026-12-01T18:00:00Z", or so long after the submission, such as "6h"; both are zero
// for "".
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
	return 0, time.Time{}, fmt.Errorf("%q is no time such as 2026-12-01T18:00:00Z, nor a duration such as 6h", text)
}

// Deadline is when a sweep that was submitted at a time should be done; zero for no deadline.
func (t *Terms) Deadline(submitted time.Time) time.Time {
	if t.DeadlineIn > 0 {
		return submitted.Add(t.DeadlineIn)
	}
	return t.DeadlineAt
}
