package policytest

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// world is a cluster and its jobs, on which plans are carried out.
type world struct {
	now        time.Time
	round      uint64
	nodes      []cluster.Node
	apps       []*policy.App
	appSeconds float64
	made       int
	// trials counts the trials that each sweep has had.
	trials map[string]int32
	// tenants with quotas; nil in a world without any.
	tenants []policy.Tenant
	// before and after are the imprints around a decision, in reused buffers.
	before, after []byte
}

// view copies the world, so that no policy can retain or change it.
func (w *world) view() *policy.View {
	v := &policy.View{Now: w.now, Round: w.round, AppSeconds: w.appSeconds, Free: nil}
	for _, n := range w.nodes {
		n.Devices, n.Links = slices.Clone(n.Devices), slices.Clone(n.Links)
		v.Nodes = append(v.Nodes, n)
	}
	v.Free = cluster.NewCapacity(v.Nodes)
	v.Tenants = slices.Clone(w.tenants)
	v.Bound()
	for _, a := range w.apps {
		app := *a
		app.Jobs, app.Demand.Quota = nil, v.QuotaOf(a.Tenant)
		for _, j := range a.Jobs {
			job := *j
			job.App, job.Curve, job.Gangs, job.Demand.Quota = &app, slices.Clone(j.Curve), nil, app.Demand.Quota
			for _, g := range j.Gangs {
				job.Gangs = append(job.Gangs, cloneGang(g))
			}
			app.Jobs = append(app.Jobs, &job)
			v.Free.Take(job.Gang(), job.Demand)
		}
		v.Apps = append(v.Apps, &app)
	}
	v.Free.Commit()
	return v
}

func cloneGang(g cluster.Gang) cluster.Gang {
	c := slices.Clone(g)
	for i := range c {
		c[i].Devices = slices.Clone(g[i].Devices)
	}
	return c
}

// find returns the world's job for one of a view.
func (w *world) find(j *policy.Job) *policy.Job {
	for _, a := range w.apps {
		for _, own := range a.Jobs {
			if own.Name() == j.Name() {
				return own
			}
		}
	}
	return nil
}

// apply carries out a plan: grants start at once, revoked jobs still have to end.
func (w *world) apply(plan policy.Plan) {
	for _, r := range plan.Revokes {
		w.find(r.Job).Ending = true
	}
	for _, r := range plan.Renews {
		w.find(r.Job).TermEnd = r.TermEnd
	}
	for _, g := range plan.Grants {
		j := w.find(g.Job)
		j.Gangs, j.Granted, j.TermEnd, j.Queued, j.Reported = []cluster.Gang{cloneGang(g.Gang)}, w.now, g.TermEnd, time.Time{}, w.now
		j.Leases++
	}
}

// advance advances time: to the policy's next round, to the end of a job, or to another event.
func (w *world) advance(t *rapid.T, next time.Time) {
	v := &policy.View{Now: w.now, Nodes: w.nodes}
	soon := w.now.Add(time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds")) * time.Second)
	if rapid.Bool().Draw(t, "wait for the next round") {
		soon = earlierFuture(w.now, next, soon)
	}
	w.eachJob(func(j *policy.Job) {
		if rate := v.Rate(j, j.Gang()); j.Running() && rate > 0 {
			end := w.now.Add(time.Duration((v.StepsLeft(j)/rate + 1) * float64(time.Second)))
			soon = earlierFuture(w.now, end, soon)
		}
	})
	passed := soon.Sub(w.now)
	w.appSeconds += passed.Seconds() * float64(len(w.apps))
	w.round++
	w.now, v.Now = soon, soon
	for _, a := range w.apps {
		a.Jobs = slices.DeleteFunc(a.Jobs, func(j *policy.Job) bool { return w.progress(t, v, j) })
	}
	w.apps = slices.DeleteFunc(w.apps, func(a *policy.App) bool { return len(a.Jobs) == 0 })
	w.drawEvent(t)
}

// progress updates a job to the present and reports whether it is done.
func (w *world) progress(t *rapid.T, v *policy.View, j *policy.Job) bool {
	if !j.Running() {
		return false
	}
	step, attained := v.StepAt(j), v.Attained(j)
	done := step >= float64(j.TotalSteps)
	if j.Ending && !done && rapid.IntRange(0, 3).Draw(t, "still ending") == 0 {
		return false
	}
	if !done && !j.Ending {
		if rapid.Bool().Draw(t, "reports") && int64(step) > j.Step {
			j.App.StepsDone += int64(step) - j.Step
			j.Step, j.Reported = int64(step), w.now
			if len(j.Curve) < policy.CurvePoints {
				j.Curve = append(j.Curve, policy.Point{Step: j.Step, Value: 1 / float64(1+j.Step)})
			}
		}
		return false
	}
	j.App.StepsDone += int64(step) - j.Step
	j.App.DeviceSeconds += attained - j.DeviceSeconds
	j.Step, j.DeviceSeconds = int64(step), attained
	j.Gangs, j.Granted, j.TermEnd, j.Reported, j.Ending, j.Queued = nil, time.Time{}, time.Time{}, time.Time{}, false, w.now
	if done {
		j.App.Finished++
	}
	return done
}

// drawEvent draws another event: sweeps arrive, trials are added, sweeps pause, nodes drain.
func (w *world) drawEvent(t *rapid.T) {
	if w.tenants != nil && rapid.IntRange(0, 7).Draw(t, "other quotas") == 0 {
		w.drawTenants(t)
	}
	switch rapid.IntRange(0, 6).Draw(t, "event") {
	case 0, 1:
		w.drawApp(t)
	case 2:
		if len(w.apps) > 0 {
			a := rapid.SampledFrom(w.apps).Draw(t, "app that grows")
			w.addJob(t, a)
		}
	case 3:
		if len(w.apps) > 0 {
			a := rapid.SampledFrom(w.apps).Draw(t, "app that pauses or goes on")
			a.Paused = !a.Paused
		}
	case 4:
		if len(w.nodes) > 0 {
			i := rapid.IntRange(0, len(w.nodes)-1).Draw(t, "node that drains or does no more")
			w.nodes[i].Draining = !w.nodes[i].Draining
		}
	}
}

func (w *world) eachJob(do func(*policy.Job)) {
	for _, a := range w.apps {
		for _, j := range a.Jobs {
			do(j)
		}
	}
}

// clear takes every job off its devices, resumes every sweep and node, and makes every model able to train on every
// type.
func (w *world) clear() {
	w.eachJob(func(j *policy.Job) {
		j.App.Paused = false
		for _, s := range []*cluster.Speeds{j.Speeds, j.App.Speeds} {
			for i := 0; s != nil && i < len(s.Measured); i++ {
				s.Measured[i].Rate = max(0.5, s.Measured[i].Rate)
			}
		}
		if j.Running() {
			j.Gangs, j.Granted, j.TermEnd, j.Reported, j.Ending, j.Queued = nil, time.Time{}, time.Time{}, time.Time{}, false, w.now
		}
	})
	for i := range w.nodes {
		w.nodes[i].Draining = false
	}
}

// canServe reports whether some waiting job fits on the cluster.
func (w *world) canServe() bool {
	v, fits := w.view(), false
	for _, j := range v.Waiting() {
		if _, ok := v.Free.Best(j.Demand); ok {
			fits = true
		}
	}
	return fits
}
