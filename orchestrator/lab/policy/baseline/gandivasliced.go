package baseline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
)

// GandivaSliced is Gandiva with the time slicing that Themis's evaluation leaves out (OSDI 2018, section 4.1): if jobs
// want more devices than there are, they take turns. At the end of each slice the jobs that ran are suspended and those
// that have waited longest run, as many as fit, each where its placement preference is highest. When no job waits, jobs
// in a bad place move to a better one (introspection). Gandiva's slices are a minute long because it suspends a job in
// less than a second; here that takes a checkpoint and a restart, so slices are longer. Packing several jobs onto one
// device is left out because devices are not shared here.
type GandivaSliced struct {
	greedy Gandiva
	slices baseline.TimeSlices
}

// NewGandivaSliced makes it from options.
func NewGandivaSliced(o *policy.Options) *GandivaSliced {
	return &GandivaSliced{
		greedy: *NewGandiva(o),
		slices: baseline.TimeSlices{Length: o.Duration("slice", 10*time.Minute, "length of a time slice; the paper has 1m")},
	}
}

// Name implements policy.Policy.
func (*GandivaSliced) Name() string { return "gandiva-sliced" }

// slicedState is the state of GandivaSliced.
type slicedState struct {
	Began  time.Time
	Moving []policy.JobName
}

// Snapshot implements policy.Policy.
func (g *GandivaSliced) Snapshot() ([]byte, error) {
	return json.Marshal(slicedState{g.slices.Began, g.greedy.moving})
}

// Restore implements policy.Policy.
func (g *GandivaSliced) Restore(b []byte) error {
	var s slicedState
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("gandiva-sliced: snapshot: %w", err)
	}
	g.slices.Began, g.greedy.moving = s.Began, s.Moving
	return nil
}

// Decide implements policy.Policy.
func (g *GandivaSliced) Decide(v *policy.View) policy.Plan {
	if len(v.Waiting()) > 0 {
		return g.slices.Decide(v, func() []*policy.Job { return g.order(v) }, "its turn")
	}
	return g.greedy.Decide(v)
}

// order lists the jobs by turn: first running jobs whose slice has not ended, then waiting jobs, longest waiting first,
// then jobs that have run, latest started first.
func (g *GandivaSliced) order(v *policy.View) []*policy.Job {
	jobs := v.Jobs()
	least := v.Now.Add(-g.slices.Length)
	class := func(j *policy.Job) int {
		switch {
		case j.Running() && j.Granted.After(least):
			return 0
		case !j.Running():
			return 1
		default:
			return 2
		}
	}
	slices.SortStableFunc(jobs, func(a, b *policy.Job) int {
		x, y := class(a), class(b)
		switch {
		case x != y:
			return cmp.Compare(x, y)
		case x == 1:
			return a.Queued.Compare(b.Queued)
		default:
			return b.Granted.Compare(a.Granted)
		}
	})
	return jobs
}
