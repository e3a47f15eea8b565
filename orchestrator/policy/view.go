package policy

import (
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// View is a policy's view of the cluster.
type View struct {
	Now   time.Time
	Round uint64
	// Nodes that are up, sorted by name. Gangs refer to them by index.
	Nodes []cluster.Node
	// Apps that have not ended, in order of submission.
	Apps []*App
	// Tenants that were configured, sorted by name. An app's tenant may be missing here.
	Tenants []Tenant
	// Free is the capacity that is free now, without the devices of ending jobs. A policy may simulate on it in a
	// Statement, and must leave it unchanged.
	Free *cluster.Capacity
	// AppSeconds is the integral over time of the number of apps since the ledger began.
	AppSeconds float64
	// MeanWeight returns the mean weight of a tenant's apps, which is above 0. It is nil if weights are not normalised.
	MeanWeight func(tenant string) float64
}

// App is a sweep that has not ended.
type App struct {
	ID     string
	Tenant string
	// Weight is relative to other apps, usually 1.
	Weight    float64
	Submitted time.Time
	// Order numbers apps by submission.
	Order int
	// Spec is the submitted spec.
	Spec *outbidv1.SweepSpec
	// DeviceSeconds is the total of leases that have ended.
	DeviceSeconds float64
	// AppSecondsBefore is the view's AppSeconds when the app was submitted.
	AppSecondsBefore float64
	// Jobs that run or wait, by trial number. While the app is paused none of them waits.
	Jobs []*Job
	// A paused app gets no devices.
	Paused bool
	// Demand of each of its jobs, and Speeds of their model for jobs without their own.
	Demand cluster.Demand
	Speeds *cluster.Speeds
	// Forks and LeastForks apply to each of its jobs, except for jobs that may no longer be forked.
	Forks, LeastForks int
	// TotalSteps is the length of a complete job, or 0 if unknown.
	TotalSteps int64
	// Tuner is the kind of its tuner as in the spec: "asha", "successive_halving", "random", ….
	Tuner string
	// Utility is the value of finishing one of its jobs, or nil if none was given.
	Utility *terms.Utility
	// Deadline is zero for no deadline.
	Deadline time.Time
	// Outlook forecasts the total work of the tuner. Call it only when needed, because it takes time. It is never nil.
	Outlook func() tuner.Outlook
	// Finished counts the jobs that have ended, and StepsDone the steps of all jobs, counting repeated steps once.
	Finished  int
	StepsDone int64
}

// Job is a trial that runs or waits for devices.
type Job struct {
	App    *App
	Trial  int32
	Demand cluster.Demand
	// Speeds of its model, as measured.
	Speeds *cluster.Speeds
	// Weight is relative to other jobs of the app, usually 1.
	Weight float64
	// Created is when it first waited for devices, and Queued since when it has been waiting, or zero if it runs.
	Created, Queued time.Time
	// Gangs that it holds, each under its own lease; none if it waits. There are several if it is forked. The first is
	// that of the leading fork.
	Gangs []cluster.Gang
	// Forks is the most forks that may train it at once, each with Demand's devices on its own node; 1 or less means
	// that it is not forked. LeastForks is the fewest forks that are allowed. Forked means that its leases are such
	// forks, each with a share of the steps; the policy grants the next fork slot when all have ended. Consolidating
	// means that they have ended and their checkpoints are being averaged.
	Forks, LeastForks     int
	Forked, Consolidating bool
	// StartStep is the step of the checkpoint that forks of a waiting job would start from. It may be below Step,
	// because unsaved steps are lost, or above, because not every step is reported.
	StartStep int64
	// Granted is when its lease began, and TermEnd when its term ends, or zero for no term.
	Granted, TermEnd time.Time
	// Ending means that its lease has been revoked and will end soon.
	Ending bool
	// Step is its progress at the time Reported. UntilStep is where it pauses next, and TotalSteps its full length;
	// each is 0 if unknown.
	Step, UntilStep, TotalSteps int64
	// Reported is when it was training at Step, or zero while it does not train.
	Reported time.Time
	// DeviceSeconds is the total of leases that have ended, and Leases their number.
	DeviceSeconds float64
	Leases        int32
	// Curve is the reported metric by step, thinned to at most CurvePoints. Minimise means that lower is better.
	Curve    []Point
	Minimise bool
}

// CurvePoints bounds the length of a job's Curve.
const CurvePoints = 64

// Point is a reported metric.
type Point struct {
	Step  int64
	Value float64
}

// Gang returns the gang of the leading fork's lease, or nil if the job holds nothing.
func (j *Job) Gang() cluster.Gang {
	if len(j.Gangs) == 0 {
		return nil
	}
	return j.Gangs[0]
}

// Held returns all devices that the job holds: the gangs of all its leases.
func (j *Job) Held() cluster.Gang {
	if len(j.Gangs) <= 1 {
		return j.Gang()
	}
	return slices.Concat(j.Gangs...)
}

// Running reports whether the job holds devices.
func (j *Job) Running() bool { return len(j.Gang()) > 0 }

// Waiting reports whether the job waits for devices and may get some.
func (j *Job) Waiting() bool { return len(j.Gang()) == 0 && !j.App.Paused && !j.Consolidating }

// Rate returns the steps per second that the job makes, or would make, on a gang.
func (v *View) Rate(j *Job, g cluster.Gang) float64 { return cluster.RateOf(v.Nodes, g, j.Speeds) }

// StepAt estimates the job's current step: its last report plus what it has trained since at its measured rate.
func (v *View) StepAt(j *Job) float64 {
	step := float64(j.Step)
	if j.Running() && !j.Reported.IsZero() && v.Now.After(j.Reported) {
		step += v.currentRate(j) * v.Now.Sub(j.Reported).Seconds()
	}
	if limit := j.highestStep(); limit > 0 {
		step = min(step, max(float64(limit), float64(j.Step)))
	}
	return step
}

// currentRate returns the steps per second of a running job: the sum over its forks, or otherwise the rate on its first
// gang.
func (v *View) currentRate(j *Job) float64 {
	if !j.Forked {
		return v.Rate(j, j.Gang())
	}
	sum := 0.0
	for _, g := range j.Gangs {
		sum += v.Rate(j, g)
	}
	return sum
}

// highestStep returns the highest step that the job may have reached, or 0 if unknown.
func (j *Job) highestStep() int64 {
	if j.UntilStep > 0 {
		return j.UntilStep
	}
	return j.TotalSteps
}

// StepsLeft returns the number of steps until TotalSteps, or until UntilStep if that is unknown, or 0 if both are.
func (v *View) StepsLeft(j *Job) float64 {
	total := max(j.TotalSteps, j.UntilStep)
	return max(0, float64(total)-v.StepAt(j))
}

// Attained returns the device-seconds of the job so far, including its current lease.
func (v *View) Attained(j *Job) float64 {
	if !j.Running() {
		return j.DeviceSeconds
	}
	return j.DeviceSeconds + max(0, v.Now.Sub(j.Granted).Seconds())*float64(j.Held().Size())
}

// MeanApps returns Themis's N_avg: the time-weighted mean number of apps over the app's life so far, itself included.
func (v *View) MeanApps(a *App) float64 {
	age := v.Now.Sub(a.Submitted).Seconds()
	if age <= 0 {
		return float64(len(v.Apps))
	}
	return (v.AppSeconds - a.AppSecondsBefore) / age
}

// ShareOf returns an app's weight in units of its tenant's share: the app's weight over the mean weight of the tenant's
// apps, times the tenant's weight. So an app's weight divides its tenant's share among the tenant's apps and takes
// nothing from other tenants. Without MeanWeight it is the product of both weights.
func (v *View) ShareOf(a *App) float64 {
	weight := a.Weight * v.Tenant(a).Weight
	if v.MeanWeight == nil {
		return weight
	}
	return weight / v.MeanWeight(a.Tenant)
}
