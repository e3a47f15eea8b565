package policy

import (
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// View is what a policy sees.
type View struct {
	Now   time.Time
	Round uint64
	// Nodes that are up, sorted by name. Gangs name them by index.
	Nodes []cluster.Node
	// Apps that have not ended, in order of submission.
	Apps []*App
	// Tenants that somebody added, sorted by name; those of apps need not be among them.
	Tenants []Tenant
	// Free is what is free now; the devices of jobs that are ending are not. A policy simulates on it in a Statement, and
	// leaves it as it was.
	Free *cluster.Capacity
	// AppSeconds is the time integral of the number of apps, since the ledger began.
	AppSeconds float64
	// MeanWeight is the mean weight of a tenant's apps, above 0; nil if nobody says.
	MeanWeight func(tenant string) float64
}

// App is a sweep that has not ended.
type App struct {
	ID     string
	Tenant string
	// Weight relative to other apps; 1 is usual.
	Weight    float64
	Submitted time.Time
	// Order counts apps by submission.
	Order int
	// Spec it was submitted with.
	Spec *outbidv1.SweepSpec
	// DeviceSeconds of leases that have ended.
	DeviceSeconds float64
	// AppSecondsBefore is the view's AppSeconds when the app was submitted.
	AppSecondsBefore float64
	// Jobs that hold devices or want some, by number. All of them want none while the app is paused.
	Jobs []*Job
	// Paused apps get nothing.
	Paused bool
	// Demand of each of its jobs, and Speeds of their model where a job has none of its own.
	Demand cluster.Demand
	Speeds *cluster.Speeds
	// Forks and LeastForks are those of each of its jobs, but for jobs that may not be forked any more.
	Forks, LeastForks int
	// TotalSteps is what a job trained to its end does; 0 if unknown.
	TotalSteps int64
	// Tuner is the kind of its tuner, as in the spec: "asha", "successive_halving", "random", ….
	Tuner string
	// Utility is what the end of one of its jobs is worth; nil if nothing was said.
	Utility *terms.Utility
	// Deadline is when it should be done; zero for no deadline.
	Deadline time.Time
	// Outlook is how much work the tuner will do in all; asked when needed, as it takes time. Never nil.
	Outlook func() tuner.Outlook
	// Finished counts the jobs that have ended, and StepsDone the steps of all jobs, repeated ones counted once.
	Finished  int
	StepsDone int64
}

// Job is a trial that holds devices or wants some.
type Job struct {
	App    *App
	Trial  int32
	Demand cluster.Demand
	// Speeds of its model: what was measured.
	Speeds *cluster.Speeds
	// Weight relative to other jobs of the app; 1 is usual.
	Weight float64
	// Created is when it first wanted devices, Queued since when it wants them now; zero if it holds some.
	Created, Queued time.Time
	// Gangs it holds, each under a lease of its own; none if it waits. The first is that of the lead. There are several where
	// several forks train it.
	Gangs []cluster.Gang
	// Forks are how many it may be trained by at once, each with as many devices as Demand says on a node of its own: 1 or less
	// for one alone. LeastForks is below how many it is not forked. Forked: its leases are such forks, and each has a share of
	// the steps; who grants them does so anew when all have ended. Consolidating: they have, and what they saved is put together.
	Forks, LeastForks     int
	Forked, Consolidating bool
	// StartStep is the step of the checkpoint that forks of a job that waits would begin at. It may lie before Step, as what was
	// not saved is lost, or beyond, as not every step is reported.
	StartStep int64
	// Granted is when its lease began, and TermEnd when its term ends; zero for no term.
	Granted, TermEnd time.Time
	// Ending: its lease was revoked and is about to end.
	Ending bool
	// Step is how far it was when Reported; UntilStep how far it is to go now, and TotalSteps if it is trained to the
	// end; 0 if unknown.
	Step, UntilStep, TotalSteps int64
	// Reported is when Step was true and training; zero while it does not train.
	Reported time.Time
	// DeviceSeconds of leases that have ended, and Leases how many there were.
	DeviceSeconds float64
	Leases        int32
	// Curve is the metric over steps as reported, thinned to at most CurvePoints; Minimise says that less is better.
	Curve    []Point
	Minimise bool
}

// CurvePoints bounds the points that are kept of a job's curve.
const CurvePoints = 64

// Point is a reported metric.
type Point struct {
	Step  int64
	Value float64
}

// Gang is what the job holds under the lease that leads; nil if it holds nothing.
func (j *Job) Gang() cluster.Gang {
	if len(j.Gangs) == 0 {
		return nil
	}
	return j.Gangs[0]
}

// Held is all that the job holds: the gangs of all its leases.
func (j *Job) Held() cluster.Gang {
	if len(j.Gangs) <= 1 {
		return j.Gang()
	}
	return slices.Concat(j.Gangs...)
}

// Running says whether the job holds devices.
func (j *Job) Running() bool { return len(j.Gang()) > 0 }

// Waiting says whether the job wants devices and may have some.
func (j *Job) Waiting() bool { return len(j.Gang()) == 0 && !j.App.Paused && !j.Consolidating }

// Rate is the steps per second that the job makes, or would make, on a gang.
func (v *View) Rate(j *Job, g cluster.Gang) float64 { return cluster.RateOf(v.Nodes, g, j.Speeds) }

// StepAt is how far the job is by now: its last report, and what it has trained since at its measured rate.
func (v *View) StepAt(j *Job) float64 {
	step := float64(j.Step)
	if j.Running() && !j.Reported.IsZero() && v.Now.After(j.Reported) {
		step += v.pace(j) * v.Now.Sub(j.Reported).Seconds()
	}
	if limit := j.limit(); limit > 0 {
		step = min(step, max(float64(limit), float64(j.Step)))
	}
	return step
}

// pace is the steps per second that a running job makes: what its forks do adds up, otherwise its lead speaks for it.
func (v *View) pace(j *Job) float64 {
	if !j.Forked {
		return v.Rate(j, j.Gang())
	}
	sum := 0.0
	for _, g := range j.Gangs {
		sum += v.Rate(j, g)
	}
	return sum
}

// limit is the furthest step that the job may be at; 0 if unknown.
func (j *Job) limit() int64 {
	if j.UntilStep > 0 {
		return j.UntilStep
	}
	return j.TotalSteps
}

// StepsLeft is how many steps the job still has to its end: to TotalSteps, to UntilStep if that is unknown; 0 if both
// are.
func (v *View) StepsLeft(j *Job) float64 {
	total := max(j.TotalSteps, j.UntilStep)
	return max(0, float64(total)-v.StepAt(j))
}

// Attained is the device-seconds that the job has had by now, the running lease included.
func (v *View) Attained(j *Job) float64 {
	if !j.Running() {
		return j.DeviceSeconds
	}
	return j.DeviceSeconds + max(0, v.Now.Sub(j.Granted).Seconds())*float64(j.Held().Size())
}

// MeanApps is Themis's N_avg: the time-weighted mean number of apps over the app's life so far, itself included.
func (v *View) MeanApps(a *App) float64 {
	age := v.Now.Sub(a.Submitted).Seconds()
	if age <= 0 {
		return float64(len(v.Apps))
	}
	return (v.AppSeconds - a.AppSecondsBefore) / age
}

// ShareOf is an app's weight as a part of what its tenant has: over the mean weight of the tenant's apps, times the tenant's weight. So a weight shares
// out among a tenant's own apps what is due to the tenant, and takes nothing from others. It is the app's own weight where
// nobody says what tenants' apps weigh.
func (v *View) ShareOf(a *App) float64 {
	weight := a.Weight * v.Tenant(a).Weight
	if v.MeanWeight == nil {
		return weight
	}
	return weight / v.MeanWeight(a.Tenant)
}
