package trace

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Limits of a job's resources; a row beyond them is considered broken.
const (
	MaxGPUs    = 1 << 20
	MaxSeconds = 1e12
	maxSteps   = 1 << 53
)

// Job is one training run in neutral form. Zero means unknown unless stated otherwise.
type Job struct {
	// ID is unique within the trace.
	ID string
	// Tenant is the owner of the job (a virtual cluster, a user group), User the person.
	Tenant, User string
	// Submit is the arrival, in seconds from the trace's start.
	Submit float64
	// MinGPUs and MaxGPUs limit the gang. They are equal for a rigid job, and both 0 for a job without GPUs.
	MinGPUs, MaxGPUs int
	// Share is the part of each GPU that the job needs, in (0, 1]; 1 is whole GPUs.
	Share float64
	// GPUTypes are the allowed types; any if empty.
	GPUTypes []string
	// Nodes is the number of nodes in the original run.
	Nodes int
	// Duration is the run time in seconds with MaxGPUs, without interruption.
	Duration float64
	// MeasuredOn is the GPU type of Duration; it does not restrict the job.
	MeasuredOn string
	// TotalSteps is the number of training steps; with a throughput table they are more informative than Duration.
	TotalSteps int64
	// Model is the job type as in Gavel's tables: "ResNet-18 (batch size 32)".
	Model string
	// Weight is its share relative to others; 1 is usual.
	Weight float64
	// SLO is the time until it should end, divided by its run time alone; 0 for none.
	SLO float64
	// Status is the final state of the original run, in the source's words.
	Status string
	// CPUs in cores and Memory in bytes, over the whole gang.
	CPUs   float64
	Memory int64
	// App is the ID of the hyperparameter exploration it belongs to; empty for a single job.
	App string
	// Loss is its loss curve, or nil if unknown.
	Loss *Curve
	// Utility is the worth of its end, or nil if unknown.
	Utility *Utility
	// Rates are its steps per second with MaxGPUs by GPU type, or nil to look its model up in a table.
	Rates map[string]float64
	// Forks is the number of processes on different nodes that may train it at once: auto, or the least and the most,
	// such as 2-5; empty for one.
	Forks string
}

// App is one hyperparameter exploration: the jobs that name it, and how its tuner ends them.
type App struct {
	ID string
	// Tuner is "successive-halving", "performance-curve", or "none" if every job runs to its end.
	Tuner string
	// Category is its kind of task: "cv", "nlp" or "speech".
	Category string
	// Eta is the factor of halving: one job in Eta continues after a phase. 0 for other tuners.
	Eta int
	// MinSteps is the length of the first phase and MaxSteps that of a job that completes all phases.
	MinSteps, MaxSteps int64
	// Grow is set if a job that continues may use Eta times as many GPUs in the next phase.
	Grow bool
}

// Curve is a loss that falls as a power law: L(s) = Floor + (Start-Floor) * (1 + s/Scale)^-Power.
type Curve struct {
	Start, Floor, Scale, Power float64
}

// At returns the loss after a number of steps.
func (c *Curve) At(step float64) float64 {
	return c.Floor + float64((c.Start-c.Floor)*math.Pow(1+step/c.Scale, -c.Power))
}

// Utility is OASiS's sigmoid in seconds: Value(t) = Priority / (1 + exp(Decay * (t - Target))), section V-A of the
// paper.
type Utility struct {
	// Priority is the maximum worth (gamma 1).
	Priority float64
	// Decay is the cost of lateness, per second (gamma 2); 0 if lateness does not matter.
	Decay float64
	// Target is the wanted time from arrival to end, in seconds (gamma 3).
	Target float64
}

// Value returns the worth of an end this many seconds after the arrival.
func (u *Utility) Value(seconds float64) float64 {
	return u.Priority / (1 + math.Exp(u.Decay*(seconds-u.Target)))
}

// Tenant is an owner of jobs.
type Tenant struct {
	Name string
	// Weight is the tenant's share relative to the others.
	Weight float64
}

// Trace is a workload. Jobs are sorted by arrival; jobs that arrive together keep the source's order.
type Trace struct {
	Name string
	Jobs []Job
	// Apps are in order of their first job.
	Apps []App
	// Tenants have weights and are sorted by name; empty if the source has no weights.
	Tenants []Tenant
	// Source describes the origin of the jobs, and the assumptions in generating them.
	Source string
	// Report describes what was read; it is empty for generated traces.
	Report Report
}

// GPUSeconds returns the GPU time of an undisturbed run. Part of a GPU counts as that part.
func (j *Job) GPUSeconds() float64 { return j.Duration * float64(j.MaxGPUs) * j.Share }

// bad returns the error for a field.
func bad(field, value, want string, args ...any) *FieldError {
	return &FieldError{Field: field, Value: value, Want: fmt.Sprintf(want, args...)}
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// Validate returns a FieldError if the job is invalid.
func (j *Job) Validate() error {
	switch {
	case j.ID == "":
		return &FieldError{Field: "id", Want: "a name"}
	case j.MinGPUs < 0 || j.MaxGPUs < j.MinGPUs || j.MaxGPUs > MaxGPUs:
		return bad("gpus", fmt.Sprintf("%d-%d", j.MinGPUs, j.MaxGPUs), "0 <= min <= max <= %d", MaxGPUs)
	case j.MinGPUs == 0 && j.MaxGPUs > 0:
		return bad("gpus", fmt.Sprintf("0-%d", j.MaxGPUs), "at least 1 of a job that uses GPUs")
	case j.TotalSteps < 0 || j.TotalSteps > maxSteps:
		return bad("total_steps", strconv.FormatInt(j.TotalSteps, 10), "0 to %d", int64(maxSteps))
	case j.Memory < 0:
		return bad("memory", strconv.FormatInt(j.Memory, 10), "0 or more")
	case j.Nodes < 0:
		return bad("nodes", strconv.Itoa(j.Nodes), "0 or more")
	case !(j.Share > 0 && j.Share <= 1):
		return bad("share", number(j.Share), "more than 0 and at most 1")
	}
	for _, n := range []struct {
		name  string
		value float64
	}{
		{"submit", j.Submit},
		{"duration", j.Duration},
		{"weight", j.Weight},
		{"slo", j.SLO},
		{"cpus", j.CPUs},
	} {
		if !(n.value >= 0 && n.value <= MaxSeconds) {
			return bad(n.name, number(n.value), "0 to %g", MaxSeconds)
		}
	}
	return j.validateCurves()
}

func (j *Job) validateCurves() error {
	if c := j.Loss; c != nil {
		if !Finite(c.Start, c.Floor, c.Scale, c.Power) || c.Scale <= 0 || c.Power <= 0 {
			return bad("loss", fmt.Sprintf("%+v", *c), "finite numbers, scale and power above 0")
		}
	}
	if u := j.Utility; u != nil {
		if !Finite(u.Priority, u.Decay, u.Target) || u.Priority < 0 || u.Decay < 0 || u.Target < 0 {
			return bad("utility", fmt.Sprintf("%+v", *u), "finite numbers, none below 0")
		}
	}
	return nil
}

// Finite reports whether all values are finite numbers.
func Finite(values ...float64) bool {
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
	}
	return true
}

// Order sorts the jobs by arrival, and the apps by their first job.
func (t *Trace) Order() {
	slices.SortStableFunc(t.Jobs, func(a, b Job) int { return cmp.Compare(a.Submit, b.Submit) })
	if len(t.Apps) == 0 {
		return
	}
	first := make(map[string]int, len(t.Apps))
	for i := range t.Jobs {
		if _, seen := first[t.Jobs[i].App]; !seen {
			first[t.Jobs[i].App] = i
		}
	}
	slices.SortStableFunc(t.Apps, func(a, b App) int { return cmp.Compare(first[a.ID], first[b.ID]) })
}
