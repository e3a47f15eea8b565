package baseline

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// TimeSlices divides time into slices. At the end of a slice all devices are reassigned; within it only free ones are.
type TimeSlices struct {
	// Length of a slice, and Began, when the current one began.
	Length time.Duration
	Began  time.Time
}

// snapshot and restore store the start of the slice.
func (t *TimeSlices) snapshot() ([]byte, error) { return json.Marshal(t.Began) }

func (t *TimeSlices) restore(b []byte) error {
	t.Began = time.Time{}
	if err := json.Unmarshal(b, &t.Began); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}

// Decide gives devices to jobs in the order that order returns. It calls order only if a job waits and there are
// devices to give.
func (t *TimeSlices) Decide(v *policy.View, order func() []*policy.Job, reason string) policy.Plan {
	ended := !v.Now.Before(t.Began.Add(t.Length))
	plan := policy.Plan{Reason: "nothing to give within the time slice"}
	waits := slices.ContainsFunc(v.Apps, func(a *policy.App) bool { return slices.ContainsFunc(a.Jobs, (*policy.Job).Waiting) })
	switch {
	case !waits || !ended && v.Free.FreeDevices() == 0:
	case ended:
		t.Began = v.Now
		inventory := v.Inventory()
		all := policy.Preempt(v)
		all.Rank(order(), func(j *policy.Job) int { return inventory.Wants(j.Demand) }, reason)
		plan = all.Plan("a new time slice", "the time slice ended, and others come first")
	default:
		fill := policy.Refill(v)
		fill.Fill(order(), reason+", of what is free within the slice")
		plan = fill.Plan("within the time slice", "")
	}
	if waits {
		plan.Next = t.Began.Add(t.Length)
	}
	return plan
}
