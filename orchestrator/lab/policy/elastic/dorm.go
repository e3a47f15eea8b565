package elastic

import (
	"math"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// NewDorm makes Dorm (Sun et al., "Towards Distributed Machine Learning in Shared Clusters: A Dynamically-Partitioned
// Approach", SMARTCOMP 2017), a baseline of OASiS.
//
// Each job has a partition of the cluster. When jobs are added or end, the partitions are resized so that as much of
// the cluster as possible is in use, while (1) the fairness loss, the sum over jobs of |share - fair share|, is at most
// 2*theta1, where the fair share is the weighted max-min (DRF) one between a job's Min and Max; and (2) at most theta2
// of the running jobs, rounded up, are resized. Running jobs keep at least their Min. If no division satisfies (1), the
// fairest one is taken.
//
// Simplifications: devices are the only resource, and each type of device is a separate cluster, to which jobs are
// assigned in order of arrival. The integer program is solved exactly by dynamic programming up to a bound on the work,
// and beyond it by a greedy algorithm that satisfies (2) and fills fair shares first. Placement follows the sizes
// instead of being part of the program.
func NewDorm(o *policy.Options) policy.Policy {
	return &Policy{name: "dorm", sizer: &dorm{
		theta1: o.Float("theta1", 0.2, 0, 1, "bound on the fairness loss, relative to the largest possible"),
		theta2: o.Float("theta2", 0.1, 0, 1, "fraction of the running trials that may be resized at once"),
	}}
}

type dorm struct{ theta1, theta2 float64 }

// due reports whether the set of jobs or devices has changed.
func (d *dorm) due(v *policy.View, m *memory) bool {
	seen := v.JobsHash()
	changed := seen != m.Jobs
	m.Jobs = seen
	return changed
}

func (d *dorm) next(*policy.View, *memory) time.Time { return time.Time{} }

func (d *dorm) sizes(v *policy.View, s *policy.Inventory, jobs []*policy.Job, free []int, _ bool) []size {
	sizes := make([]size, 0, len(jobs))
	cells := make([][]member, len(free))
	at := make([][]int, len(free))
	expected := slices.Clone(free)
	for _, pass := range [...]bool{true, false} { // running jobs first, because they stay on their type
		for _, j := range jobs {
			if j.Running() != pass {
				continue
			}
			one := size{job: j, kind: s.KindOf(v, j.Gang())}
			switch {
			case j.Running() && one.kind < 0:
				keepSize(v, s, &one, free)
			case !j.Running():
				one.kind = emptiest(s, j, expected)
			}
			sizes = append(sizes, one)
			if one.kind < 0 {
				continue
			}
			m := member{held: j.Gang().Size(), least: max(1, j.Demand.Min), most: s.Most(j.Demand, one.kind), weight: weightOf(j)}
			m.most = max(m.most, m.held, m.least)
			expected[one.kind] -= max(m.held, m.least)
			cells[one.kind] = append(cells[one.kind], m)
			at[one.kind] = append(at[one.kind], len(sizes)-1)
		}
	}
	for k := range cells {
		n := divide(cells[k], free[k], 2*d.theta1, d.theta2)
		for i, where := range at[k] {
			sizes[where].n = n[i]
		}
	}
	return sizes
}

// emptiest returns the type with the most devices left among those on which the job could ever run, or -1.
func emptiest(s *policy.Inventory, j *policy.Job, expected []int) int {
	best := -1
	for k := range expected {
		if s.Most(j.Demand, k) > 0 && (best < 0 || expected[k] > expected[best]) {
			best = k
		}
	}
	return best
}

func weightOf(j *policy.Job) float64 {
	w := j.Weight * j.App.Weight
	if !(w > 0) || math.IsInf(w, 0) {
		return 1
	}
	return w
}
