// Package stagetest is a small simulation for tests of policies: a cluster, jobs that train at the rate of their gang,
// and a clock that jumps from event to event. Every plan is checked and carried out. The simulator proper drives the
// control loop itself; this package shows a policy's behaviour in a few lines.
package stagetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Nodes makes count nodes named after the type, each with the given number of devices in slots of slot devices.
func Nodes(kind string, count, devices, slot int) []cluster.Node {
	nodes := make([]cluster.Node, count)
	for i := range nodes {
		nodes[i] = cluster.Node{Name: fmt.Sprintf("%s-%03d", kind, i), Rack: "r", Trusted: true}
		for d := range devices {
			nodes[i].Devices = append(nodes[i].Devices, cluster.Device{Index: d, Type: kind, Slot: d / slot, Speed: 1})
		}
	}
	return nodes
}

// Stage is a cluster with its jobs at some time.
type Stage struct {
	Nodes []cluster.Node
	Apps  []*policy.App
	Now   time.Time
	// Tenants with weights, sorted by name. Quotas are not enforced here.
	Tenants []policy.Tenant
	// Stop is how long a revoked job takes to release its devices.
	Stop time.Duration
	// Ended is when each job ended, Held the device-seconds of each tenant, and Revoked the number of jobs stopped.
	Ended   map[policy.JobName]time.Duration
	Held    map[string]float64
	Revoked int
	// Rounds counts decisions.
	Rounds uint64

	start   time.Time
	ask     time.Time
	leaving map[*policy.Job]time.Time
	exact   map[*policy.Job]float64
}

// New returns a stage at time 0.
func New(nodes ...cluster.Node) *Stage {
	start := time.Unix(1_700_000_000, 0).UTC()
	return &Stage{
		Nodes: nodes, Now: start, start: start, Ended: map[policy.JobName]time.Duration{}, Held: map[string]float64{},
		leaving: map[*policy.Job]time.Time{}, exact: map[*policy.Job]float64{},
	}
}

// App submits a sweep.
func (s *Stage) App(id, tenant string) *policy.App {
	a := &policy.App{
		ID: id, Tenant: tenant, Weight: 1, Submitted: s.Now, Order: len(s.Apps), Spec: &outbidv1.SweepSpec{Name: id},
		Outlook: func() tuner.Outlook { return tuner.Outlook{} },
	}
	s.Apps = append(s.Apps, a)
	return a
}

// Job adds a trial with a number of steps that wants least to most devices.
func (s *Stage) Job(a *policy.App, least, most int, steps int64) *policy.Job {
	a.Finished++ // counts the trials ever made, for their numbers
	j := &policy.Job{
		App: a, Trial: int32(a.Finished - 1), Demand: cluster.Demand{Min: least, Max: most}, Weight: 1, Speeds: a.Speeds,
		Created: s.Now, Queued: s.Now, UntilStep: steps, TotalSteps: steps,
	}
	a.Jobs = append(a.Jobs, j)
	return j
}

// View returns the policy's view now.
func (s *Stage) View() *policy.View {
	v := &policy.View{Now: s.Now, Round: s.Rounds, Nodes: s.Nodes, Tenants: s.Tenants, Free: cluster.NewCapacity(s.Nodes)}
	for _, a := range s.Apps {
		if len(a.Jobs) == 0 {
			continue
		}
		v.Apps = append(v.Apps, a)
		for _, j := range a.Jobs {
			v.Free.Take(j.Held(), j.Demand)
		}
	}
	return v
}

// TB is the part of a test that the stage needs.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Settle ends the jobs that are ending, advancing time by Stop.
func (s *Stage) Settle() { s.advance(s.Stop) }

// Decide asks the policy, checks its plan, carries it out and returns it.
func (s *Stage) Decide(t TB, p policy.Policy) policy.Plan {
	t.Helper()
	s.Rounds++
	plan := p.Decide(s.View())
	free := s.View().Free
	for _, r := range plan.Revokes {
		if !r.Job.Running() || r.Job.Ending || r.Reason == "" {
			t.Fatalf("bad revoke of %v: %q", r.Job.Name(), r.Reason)
		}
		r.Job.Ending = true
		s.leaving[r.Job] = s.Now.Add(s.Stop)
		s.Revoked++
	}
	for _, r := range plan.Renews {
		if !r.Job.Running() || r.Job.Ending || r.Reason == "" || !r.TermEnd.After(s.Now) {
			t.Fatalf("bad renewal of %v until %v: %q", r.Job.Name(), r.TermEnd, r.Reason)
		}
		r.Job.TermEnd = r.TermEnd
	}
	for _, g := range plan.Grants {
		n := g.Gang.Size()
		if !g.Job.Waiting() || !free.Fits(g.Gang, g.Job.Demand) || n < g.Job.Demand.Min || n > g.Job.Demand.Max || g.Reason == "" {
			t.Fatalf("bad grant of %v to %v, which holds %v: %q", g.Gang, g.Job.Name(), g.Job.Gang(), g.Reason)
		}
		free.Take(g.Gang, g.Job.Demand)
		j := g.Job
		j.Gangs, j.Granted, j.Reported, j.Queued = []cluster.Gang{g.Gang}, s.Now, s.Now, time.Time{}
		j.TermEnd = g.TermEnd
		j.Leases++
	}
	s.ask = plan.Next
	return plan
}

// Run advances time for at most long, asking the policy at every event, until nothing is left to do.
func (s *Stage) Run(t TB, p policy.Policy, long time.Duration) {
	t.Helper()
	until := s.Now.Add(long)
	for rounds := 0; ; rounds++ {
		if rounds > 100_000 {
			t.Fatalf("no end after %s", s.Now.Sub(s.start))
		}
		s.Decide(t, p)
		next := until
		if s.ask.After(s.Now) && s.ask.Before(next) {
			next = s.ask
		}
		v := &policy.View{Now: s.Now, Nodes: s.Nodes}
		busy := false
		s.each(func(j *policy.Job) {
			busy = true
			if !j.Running() {
				return
			}
			at := s.leaving[j]
			if !j.Ending {
				left := float64(j.TotalSteps) - s.exact[j]
				at = s.Now.Add(time.Duration(left / v.Rate(j, j.Gang()) * 1e9)).Add(1)
			}
			if at.Before(next) {
				next = at
			}
		})
		if !busy || !next.Before(until) {
			s.advance(until.Sub(s.Now))
			return
		}
		s.advance(next.Sub(s.Now))
	}
}

// advance advances running jobs, and ends those that are done or leaving.
func (s *Stage) advance(long time.Duration) {
	v := &policy.View{Now: s.Now, Nodes: s.Nodes}
	s.Now = s.Now.Add(max(0, long))
	s.each(func(j *policy.Job) {
		if !j.Running() {
			return
		}
		s.Held[j.App.Tenant] += long.Seconds() * float64(j.Gang().Size())
		if !j.Ending {
			s.exact[j] += v.Rate(j, j.Gang()) * long.Seconds()
			j.Step, j.Reported = int64(s.exact[j]), s.Now
		}
		done := !j.Ending && s.exact[j] >= float64(j.TotalSteps)-1e-6
		if !done && (!j.Ending || s.Now.Before(s.leaving[j])) {
			return
		}
		used := s.Now.Sub(j.Granted).Seconds() * float64(j.Gang().Size())
		j.DeviceSeconds += used
		j.App.DeviceSeconds += used
		j.Gangs, j.Ending, j.Granted, j.TermEnd, j.Reported, j.Queued = nil, false, time.Time{}, time.Time{}, time.Time{}, s.Now
		delete(s.leaving, j)
		if done {
			s.Ended[j.Name()] = s.Now.Sub(s.start)
			j.App.Jobs = slices.DeleteFunc(slices.Clone(j.App.Jobs), func(o *policy.Job) bool { return o == j })
		}
	})
}

func (s *Stage) each(do func(*policy.Job)) {
	for _, a := range s.Apps {
		for _, j := range slices.Clone(a.Jobs) {
			do(j)
		}
	}
}
