// Package elastic holds the policies that resize running jobs as others are added and end: Optimus, SLAQ and Dorm. A
// job that is resized saves, releases its devices, and restarts on the new ones.
package elastic

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// sizer decides how many devices each job should have.
type sizer interface {
	// sizes returns the sizes of jobs that share the free devices of each type. Running and ending jobs keep their
	// type. all means that jobs are all jobs, and every device may be reassigned.
	sizes(v *policy.View, s *policy.Inventory, jobs []*policy.Job, free []int, all bool) []size
	// due reports whether to decide all sizes again.
	due(v *policy.View, m *memory) bool
	// next returns when they are due if nothing changes, or zero for never.
	next(v *policy.View, m *memory) time.Time
}

// size is how many devices of a type a job should have; 0 for none.
type size struct {
	job     *policy.Job
	kind, n int
}

// Policy resizes jobs as its sizer decides.
type Policy struct {
	name  string
	sizer sizer
	m     memory
}

// memory is the policy's state.
type memory struct {
	// Decided is when all sizes were last decided, and Jobs the hash of the jobs and nodes then.
	Decided time.Time
	Jobs    uint64
	// Wanted is the size of jobs that wait for devices which they or others still have to release.
	Wanted map[policy.JobName]int
}

// Name implements policy.Policy.
func (p *Policy) Name() string { return p.name }

// Snapshot implements policy.Policy.
func (p *Policy) Snapshot() ([]byte, error) { return json.Marshal(p.m) }

// Restore implements policy.Policy.
func (p *Policy) Restore(b []byte) error {
	p.m = memory{}
	if err := json.Unmarshal(b, &p.m); err != nil {
		return fmt.Errorf("%s: snapshot: %w", p.name, err)
	}
	return nil
}

// Decide implements policy.Policy. Between two decisions about all sizes running jobs are not resized and only free
// devices are given out, so a new job waits for its share, but does not cause stops by itself.
func (p *Policy) Decide(v *policy.View) policy.Plan {
	jobs := v.Jobs()
	if p.m.Wanted == nil {
		p.m.Wanted = map[policy.JobName]int{}
	}
	plan := policy.Plan{Reason: "nothing to give"}
	switch {
	case len(jobs) == 0:
		return policy.Plan{Reason: "no jobs"}
	case p.sizer.due(v, &p.m):
		plan = p.resize(v, jobs)
	case v.Free.FreeDevices() > 0 && slices.ContainsFunc(jobs, (*policy.Job).Waiting):
		plan = p.refill(v, jobs)
	}
	plan.Next = p.sizer.next(v, &p.m)
	return plan
}

// resize decides all sizes.
func (p *Policy) resize(v *policy.View, jobs []*policy.Job) policy.Plan {
	all, inventory := policy.Preempt(v), v.Inventory()
	sizes := p.sizer.sizes(v, inventory, jobs, freeOf(all, inventory), true)
	p.m.Decided, p.m.Wanted = v.Now, map[policy.JobName]int{}
	var grow, start []size
	for _, s := range sizes {
		switch held := s.job.Gang().Size(); {
		case s.n == 0:
		case s.job.Ending, held == 0:
			start = append(start, s)
		case s.n == held && s.kind == inventory.KindOf(v, s.job.Gang()), s.n > held:
			if all.Keep(s.job) && s.n > held {
				grow = append(grow, s)
			}
		default:
			p.resizeOne(all, inventory, s)
		}
	}
	for _, s := range grow {
		p.resizeOne(all, inventory, s)
	}
	all.Fill(p.start(all, inventory, start, jobs), "free, and nobody gains more by it")
	return all.Plan("sizes decided anew", "another size, or others gain more by its devices")
}

// refill gives free devices to waiting jobs.
func (p *Policy) refill(v *policy.View, jobs []*policy.Job) policy.Plan {
	fill, inventory := policy.Refill(v), v.Inventory()
	var moved []size
	var waiting []*policy.Job
	for _, j := range jobs {
		n, resized := p.m.Wanted[j.Name()]
		switch {
		case j.Running() && !j.Ending:
			delete(p.m.Wanted, j.Name())
		case resized:
			moved = append(moved, size{j, -1, n})
		case j.Waiting():
			waiting = append(waiting, j)
		}
	}
	p.start(fill, inventory, moved, nil)
	if len(waiting) > 0 && fill.Free().FreeDevices() > 0 {
		sizes := p.sizer.sizes(v, inventory, waiting, freeOf(fill, inventory), false)
		fill.Fill(p.start(fill, inventory, sizes, waiting), "free, and nobody gains more by it")
	}
	return fill.Plan("free devices between two decisions on all sizes", "")
}

func freeOf(p *policy.Planner, s *policy.Inventory) []int {
	free := make([]int, len(s.Types()))
	for k, kind := range s.Types() {
		free[k] = p.Free().FreeOf(kind)
	}
	return free
}

// resizeOne gives a running job its new size if there is a place for it.
func (p *Policy) resizeOne(all *policy.Planner, inventory *policy.Inventory, s size) {
	if all.Resize(s.job, s.n, kindName(inventory, s.kind), reasonOf(s.n)) {
		p.m.Wanted[s.job.Name()] = s.n
	}
}

// start places jobs that hold nothing, smallest first as in Optimus (section 4.2). A job whose size fits nowhere gets
// fewer devices. It returns the waiting jobs without a place.
func (p *Policy) start(plan *policy.Planner, inventory *policy.Inventory, sizes []size, jobs []*policy.Job) []*policy.Job {
	placed := map[*policy.Job]bool{}
	slices.SortStableFunc(sizes, func(a, b size) int { return a.n - b.n })
	for _, s := range sizes {
		d := s.job.Demand
		for n := s.n; n > 0 && n >= d.Min; n-- {
			gang, ok := plan.Free().Place(d, n, kindName(inventory, s.kind))
			if !ok {
				continue
			}
			if plan.PlaceOn(s.job, plan.PreferFreeNow(s.job, gang), reasonOf(n)) {
				p.m.Wanted[s.job.Name()] = n
				placed[s.job] = true
			}
			break
		}
	}
	var rest []*policy.Job
	for _, j := range jobs {
		if j.Waiting() && !placed[j] {
			rest = append(rest, j)
		}
	}
	return rest
}

func kindName(inventory *policy.Inventory, kind int) string {
	if kind < 0 {
		return ""
	}
	return inventory.Types()[kind]
}

func reasonOf(n int) string { return fmt.Sprintf("its share of the devices is %d", n) }
