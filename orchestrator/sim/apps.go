package sim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/orchestrator/trace"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Metric is the metric that simulated trials report: a loss, to be minimised.
const Metric = "loss"

// Making describes the conversion of a trace's jobs into apps.
type Making struct {
	// Types are the device types in the cluster, for which throughputs are looked up.
	Types []string
	// Throughputs are those of the jobs' models, or nil if durations apply to every type.
	Throughputs *trace.Throughputs
	// Slowdown is S by spread: slot, machine, rack, cluster. nil means 1, 1, 1.1, 1.3 for jobs without a throughput
	// table, and 1 everywhere for those with one, as in Gavel.
	Slowdown []float64
	// Mixed allows the devices of a job to be of several types.
	Mixed bool
	// Forks is the number of processes that may train a job, unless the job sets it; empty for one.
	Forks string
	// Reports is the number of reports of a job with a loss curve before its end; 0 is 16.
	Reports int
}

// Apps returns the apps of a trace in order of arrival: one for each exploration, and one for each other job.
func Apps(t *trace.Trace, how Making) ([]App, error) {
	if how.Reports == 0 {
		how.Reports = 16
	}
	explorations := map[string]*trace.App{}
	for i := range t.Apps {
		explorations[t.Apps[i].ID] = &t.Apps[i]
	}
	members := map[string][]*trace.Job{}
	for i := range t.Jobs {
		if id := t.Jobs[i].App; id != "" {
			members[id] = append(members[id], &t.Jobs[i])
		}
	}
	var apps []App
	for i := range t.Jobs {
		j := &t.Jobs[i]
		jobs := []*trace.Job{j}
		if j.App != "" {
			if jobs = members[j.App]; jobs == nil {
				continue // its exploration was already added
			}
			delete(members, j.App)
		}
		a, err := how.app(jobs, explorations[j.App])
		if err != nil {
			return nil, fmt.Errorf("job %s: %w", j.ID, err)
		}
		apps = append(apps, a)
	}
	if len(apps) == 0 {
		return nil, errors.New("the trace has no jobs")
	}
	return apps, nil
}

func (how *Making) app(jobs []*trace.Job, of *trace.App) (App, error) {
	first := jobs[0]
	tenant := first.Tenant
	if tenant == "" {
		tenant = "default"
	}
	least, most := first.MinGPUs, first.MaxGPUs
	if most == 0 {
		return App{}, errors.New("it has no GPUs; leave such jobs out")
	}
	a := App{
		Submit: seconds(first.Submit),
		Spec: &outbidv1.SweepSpec{
			Name: "job", Tenant: tenant, Metric: Metric, Mode: "min", Weight: first.Weight,
			Labels: map[string]string{"job": first.ID},
			Resources: &outbidv1.Resources{
				Devices: &outbidv1.DeviceCount{Min: int32(least), Max: int32(most)}, Types: first.GPUTypes, Spread: true,
			},
			Limits:   &outbidv1.Limits{Trials: int32(len(jobs))},
			Workload: &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{Command: []string{"train"}}},
		},
	}
	a.Spec.Resources.Mixed = how.Mixed
	if forks := cmp.Or(first.Forks, how.Forks); forks != "" {
		a.Spec.Resources.Forks, a.Spec.Resources.Spread = forks, false
	}
	if of != nil {
		a.Spec.Labels["app"] = of.ID
	}
	restarts := int32(math.MaxInt32)
	a.Spec.MaxRestarts = &restarts
	if u := first.Utility; u != nil && len(jobs) == 1 {
		// for policies that use utilities
		a.Spec.Utility = &outbidv1.Utility{Priority: u.Priority, Decay: u.Decay, Target: u.Target}
	}
	longest := int64(0)
	for i, j := range jobs {
		job, err := how.job(j)
		if err != nil {
			return App{}, err
		}
		longest = max(longest, job.Steps)
		a.Jobs = append(a.Jobs, job)
		for _, s := range job.Speeds.Measured {
			h := terms.ThroughputOf(s)
			if len(jobs) > 1 {
				n := int32(i)
				h.Trial = &n
			}
			a.Spec.Throughputs = append(a.Spec.Throughputs, h)
		}
	}
	a.Spec.Tuner = tunerOf(of, longest, len(jobs))
	spec.Default(a.Spec)
	return a, nil
}

// tunerOf returns the tuner of an exploration. Without one, each job runs to its end.
func tunerOf(of *trace.App, longest int64, jobs int) *outbidv1.Tuner {
	if of != nil && of.Tuner == "successive-halving" {
		return &outbidv1.Tuner{Kind: &outbidv1.Tuner_SuccessiveHalving{SuccessiveHalving: &outbidv1.SuccessiveHalving{
			MaxSteps: of.MaxSteps, MinSteps: max(1, of.MinSteps), Eta: int32(of.Eta), Trials: int32(jobs), Grow: of.Grow,
		}}}
	}
	if of != nil && of.Tuner == "performance-curve" {
		return &outbidv1.Tuner{Kind: &outbidv1.Tuner_PerformanceCurve{PerformanceCurve: &outbidv1.PerformanceCurve{MaxSteps: longest}}}
	}
	return &outbidv1.Tuner{Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{MaxSteps: longest}}}
}

// job returns the behaviour of a job. Without a throughput table, a step takes a second on all its GPUs.
func (how *Making) job(j *trace.Job) (Job, error) {
	out := Job{Speeds: &cluster.Speeds{}, Steps: j.TotalSteps, Isolated: j.Duration}
	if j.Loss != nil {
		out.Loss, out.Reports = j.Loss.At, how.Reports
	}
	if j.Utility != nil {
		out.Utility, out.Target, out.Decay = j.Utility.Value, j.Utility.Target, j.Utility.Decay
	}
	if len(j.Rates) > 0 && j.TotalSteps > 0 {
		return out, how.own(j, &out)
	}
	if how.Throughputs != nil && j.Model != "" && j.TotalSteps > 0 {
		if err := how.table(j, &out); err != nil {
			return Job{}, err
		}
		return out, nil
	}
	if j.Duration <= 0 {
		return Job{}, errors.New("it has no duration, and no steps with a throughput table: give --throughputs FILE")
	}
	if out.Steps <= 0 {
		out.Steps = max(1, int64(math.Round(j.Duration)))
	}
	// A trace's durations are without slowdown: equation 2 derives T_cluster from them.
	out.Speeds.Measured = []cluster.Speed{{
		Devices: j.MaxGPUs, Locality: cluster.SameSlot, Rate: float64(out.Steps) / j.Duration,
	}}
	how.slow(&out, j.Model)
	return out, nil
}

// own takes the job's speeds from its rates, for every type of the cluster that has one.
func (how *Making) own(j *trace.Job, out *Job) error {
	fastest := 0.0
	for _, kind := range how.Types {
		if rate := j.Rates[kind]; rate > 0 {
			out.Speeds.Measured = append(out.Speeds.Measured, cluster.Speed{Type: kind, Devices: j.MaxGPUs, Locality: cluster.SameMachine, Rate: rate})
			fastest = max(fastest, rate)
		}
	}
	if fastest == 0 {
		return fmt.Errorf("it has rates on %s, but the cluster has only %s", strings.Join(slices.Sorted(maps.Keys(j.Rates)), ", "), strings.Join(how.Types, ", "))
	}
	out.Isolated = float64(j.TotalSteps) / fastest
	how.slow(out, j.Model)
	return nil
}

// table takes the job's speeds from the throughput table, for every type of the cluster that it has.
func (how *Making) table(j *trace.Job, out *Job) error {
	fastest := 0.0
	for _, kind := range how.Types {
		rate, err := how.Throughputs.Isolated(j.Model, j.MaxGPUs, kind)
		if err != nil {
			if missing, ok := errors.AsType[*trace.MissingError](err); ok && !missing.NoType {
				return err
			}
			continue // a type that the table lacks completely: the job runs there as fast as on its slowest type
		}
		out.Speeds.Measured = append(out.Speeds.Measured, cluster.Speed{
			Type: kind, Devices: j.MaxGPUs, Locality: cluster.SameMachine, Rate: rate,
		})
		fastest = max(fastest, rate)
		if apart, err := how.Throughputs.Isolated(j.Model, j.MaxGPUs, kind+trace.Spread); err == nil && how.Slowdown != nil {
			out.Speeds.Measured = append(out.Speeds.Measured, cluster.Speed{
				Type: kind, Devices: j.MaxGPUs, Locality: cluster.SameRack, Rate: apart,
			})
		}
	}
	if fastest == 0 {
		return fmt.Errorf("%s on %d GPUs runs on none of the cluster's types %s", j.Model, j.MaxGPUs, strings.Join(how.Types, ", "))
	}
	out.Isolated = float64(j.TotalSteps) / fastest
	if how.Slowdown == nil {
		out.Speeds.S = [4]float64{1, 1, 1, 1}
		return nil
	}
	how.slow(out, "")
	return nil
}

// slow sets the slowdowns of a model by spread. Models that Themis's workloads list as network-intensive have the
// largest.
func (how *Making) slow(out *Job, model string) {
	if how.Slowdown != nil {
		copy(out.Speeds.S[:], how.Slowdown)
		return
	}
	if trace.NetworkIntensive(model) {
		out.Speeds.S = [4]float64{1, 1.2, 2, 2.4}
	}
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }
