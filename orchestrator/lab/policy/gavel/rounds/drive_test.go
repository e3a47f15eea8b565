package rounds_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// driver runs a policy on a virtual clock as the simulator does, without control: revoked jobs release their devices at
// once.
type driver struct {
	t      testing.TB
	p      policy.Policy
	v      *policy.View
	zero   time.Time
	coming []arrival
	// ended is when each job ended, in seconds, by sweep.
	ended   map[string]float64
	moves   int
	rounds  int
	busy    float64
	decided time.Duration
	// each is called after every decision. singly makes every arrival a separate decision.
	each   func(policy.Plan)
	singly bool
}

type arrival struct {
	at  float64
	job *policy.Job
}

// newDriver returns a driver with nodes of perNode devices of each type.
func newDriver(t testing.TB, p policy.Policy, perNode int, devices map[string]int, order ...string) *driver {
	d := &driver{t: t, p: p, v: &policy.View{}, zero: time.Unix(1_600_000_000, 0).UTC(), ended: map[string]float64{}}
	for _, kind := range order {
		for i := range devices[kind] {
			if i%perNode == 0 {
				d.v.Nodes = append(d.v.Nodes, cluster.Node{Name: fmt.Sprintf("n%04d", len(d.v.Nodes))})
			}
			n := &d.v.Nodes[len(d.v.Nodes)-1]
			n.Devices = append(n.Devices, cluster.Device{Index: i % perNode, Type: kind, Speed: 1})
		}
	}
	d.v.Free = cluster.NewCapacity(d.v.Nodes)
	return d
}

// add schedules the arrival of a job.
func (d *driver) add(at float64, steps int64, scale int, weight float64, speeds *cluster.Speeds) {
	a := &policy.App{
		ID: fmt.Sprintf("a-%d", len(d.coming)), Order: len(d.coming), Weight: 1, Submitted: d.time(at), TotalSteps: steps,
		Demand: cluster.Demand{Min: scale, Max: scale, MultiNode: true}, Speeds: speeds,
	}
	j := &policy.Job{
		App: a, Demand: a.Demand, Speeds: speeds, Weight: weight, Created: d.time(at), Queued: d.time(at),
		UntilStep: steps, TotalSteps: steps,
	}
	a.Jobs = []*policy.Job{j}
	d.coming = append(d.coming, arrival{at, j})
}

func (d *driver) time(seconds float64) time.Time { return d.zero.Add(time.Duration(seconds * 1e9)) }

func (d *driver) seconds(t time.Time) float64 { return t.Sub(d.zero).Seconds() }

// end returns when a running job is done.
func (d *driver) end(j *policy.Job) time.Time {
	left := float64(j.TotalSteps-j.Step) / d.v.Rate(j, j.Gang())
	return j.Reported.Add(time.Duration(math.Ceil(left * 1e9)))
}

func (d *driver) run() {
	coming := d.coming
	next := time.Time{}
	for len(coming) > 0 || len(d.v.Apps) > 0 {
		now := next
		soonest := func(t time.Time) {
			if !t.IsZero() && (now.IsZero() || t.Before(now)) {
				now = t
			}
		}
		if len(coming) > 0 {
			soonest(d.time(coming[0].at))
		}
		for _, a := range d.v.Apps {
			if j := a.Jobs[0]; j.Running() {
				soonest(d.end(j))
			}
		}
		if now.IsZero() {
			d.t.Fatalf("nothing will happen any more, and %d jobs have not ended", len(d.v.Apps))
		}
		d.v.Now = now
		d.finish()
		for len(coming) > 0 && !d.time(coming[0].at).After(now) {
			d.v.Apps = append(d.v.Apps, coming[0].job.App)
			coming = coming[1:]
			if d.singly {
				d.decide()
			}
		}
		next = d.decide()
	}
}

// finish removes the jobs that are done.
func (d *driver) finish() {
	kept := d.v.Apps[:0]
	for _, a := range d.v.Apps {
		j := a.Jobs[0]
		if j.Running() && !d.end(j).After(d.v.Now) {
			d.ended[a.ID] = d.seconds(d.v.Now)
			d.leave(j)
			continue
		}
		kept = append(kept, a)
	}
	d.v.Apps = kept
}

func (d *driver) leave(j *policy.Job) {
	d.busy += d.v.Now.Sub(j.Granted).Seconds() * float64(j.Gang().Size())
	d.v.Free.Release(j.Gang(), j.Demand)
	j.Step = int64(d.v.StepAt(j))
	j.Gangs, j.Reported, j.Ending, j.Queued = nil, time.Time{}, false, d.v.Now
}

// decide calls the policy until it revokes nothing more.
func (d *driver) decide() time.Time {
	for {
		d.v.Free.Commit()
		began := time.Now()
		plan := d.p.Decide(d.v)
		d.decided += time.Since(began)
		d.rounds++
		d.v.Free.Rollback(0)
		for _, r := range plan.Revokes {
			d.leave(r.Job)
			d.moves++
		}
		for _, g := range plan.Grants {
			if g.Job.Running() || !d.v.Free.Fits(g.Gang, g.Job.Demand) || g.Reason == "" {
				d.t.Fatalf("at %s job %s was granted devices that it cannot have: %v", d.v.Now, g.Job.App.ID, g.Gang)
			}
			d.v.Free.Take(g.Gang, g.Job.Demand)
			g.Job.Gangs, g.Job.Granted, g.Job.Reported, g.Job.Queued = []cluster.Gang{g.Gang}, d.v.Now, d.v.Now, time.Time{}
		}
		if d.each != nil {
			d.each(plan)
		}
		if len(plan.Revokes) == 0 {
			return plan.Next
		}
	}
}
