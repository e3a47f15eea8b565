// Package elastic holds the policies that give jobs more or fewer devices as others come and go: Optimus, SLAQ and Dorm.
// A job that is resized saves, leaves its devices, and starts again on the new ones.
package elastic

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// sizer decides how many devices jobs are to have.
type sizer interface {
	// sizes of some jobs that share what is free of each type. Jobs that run or end keep their type. all says that these
	// are all jobs there are, and everything is up for grabs.
	sizes(v *policy.View, s *policy.Inventory, jobs []*policy.Job, free []int, all bool) []size
	// due says whether all sizes are to be decided anew.
	due(v *policy.View, m *memory) bool
	// next is when they are due if nothing happens; zero for never.
	next(v *policy.View, m *memory) time.Time
}

// size is how many devices of a type a job is to have; 0 for none.
type size struct {
	job     *policy.Job
	kind, n int
}

// Policy resizes jobs as its sizer says.
type Policy struct {
	name  string
	sizer sizer
	m     memory
}

// memory is what the policy knows beyond the view.
type memory struct {
	// Decided is when all sizes were decided last, and Jobs stands for the set of jobs and devices there was.
	Decided time.Time
	Jobs    uint64
	// Wanted is the size of jobs whose devices have still to be given up, by others or by themselves.
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

// Decide implements policy.Policy. Between two times at which all sizes are decided, what runs goes on, and only what is
// free is given away; so an arrival waits for its share, but nobody is stopped for each.
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

// refill gives what is free to those who wait.
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

// start finds places for jobs that hold none, the smallest first as in Optimus (section 4.2): whose size fits nowhere
// gets fewer devices. It returns those of the jobs that wait without a place.
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
