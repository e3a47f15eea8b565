package generate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// HadarOptions describe the trace-driven workload of the Hadar paper.
type HadarOptions struct {
	Seed uint64
	Jobs int
	// Base is the trace to take jobs from, Philly's in the paper; nil for jobs with Philly's distribution as described
	// by Gavel's authors.
	Base *trace.Trace
	// FromHour and ToHour limit the hours of the base trace's days from which jobs are taken.
	FromHour, ToHour float64
	// UniformSizes draws the size first and then a job of that size. Otherwise jobs are drawn uniformly, which keeps
	// the base trace's many small jobs.
	UniformSizes bool
	// Arrive keeps the arrivals. In the paper all jobs are present at the start.
	Arrive bool
	// Throughputs convert durations into steps, on GPUs of type Reference.
	Throughputs *trace.Throughputs
	Reference   string
}

// HadarDefaults returns the paper's options: 480 jobs of the hours 3 to 10, all present at the start, V100 as
// reference. The paper is ambiguous about UniformSizes. With sizes drawn first, its total of 40 hours on 60 GPUs would
// be impossible (480 jobs of 29 GPU-hours each), so the jobs are drawn uniformly.
func HadarDefaults(table *trace.Throughputs) HadarOptions {
	return HadarOptions{Jobs: 480, FromHour: 3, ToHour: 10, Throughputs: table, Reference: "v100"}
}

// hadarSize is a row of the paper's table II: GPU-hours from low to high, and the families of models.
type hadarSize struct {
	name      string
	low, high float64
	families  []string
}

func hadarSizes() []hadarSize {
	return []hadarSize{
		{"S", 0, 1, []string{"ResNet-18"}},
		{"M", 1, 10, []string{"CycleGAN"}},
		{"L", 10, 50, []string{"LM", "Transformer"}},
		{"XL", 60, 100, []string{"ResNet-50"}},
	}
}

// sizeOf returns the index of the size for a number of GPU-hours, or -1 between L and XL and beyond XL.
func sizeOf(gpuHours float64) int {
	return slices.IndexFunc(hadarSizes(), func(s hadarSize) bool {
		return gpuHours > s.low && gpuHours <= s.high
	})
}

// MakeHadar generates the paper's workload. A gang that is not in the table of throughputs is reduced to the largest
// that is, and lasts proportionally longer. The size becomes the job's status.
func MakeHadar(o HadarOptions) (*trace.Trace, error) {
	if o.Throughputs == nil {
		return nil, errors.New("make a hadar trace: throughputs are missing: its jobs are measured in steps")
	}
	if err := positive("make a hadar trace", setting{"jobs", float64(o.Jobs)}); err != nil {
		return nil, err
	}
	picked, from, err := o.pick()
	if err != nil {
		return nil, err
	}
	kinds := newDraw(o.Seed, "hadar kinds")
	out := &trace.Trace{Name: fmt.Sprintf("hadar-%d", o.Seed), Jobs: picked}
	out.Source = fmt.Sprintf("made with the figures of the Hadar paper from %s: seed %d, %d jobs, uniform sizes %t",
		from, o.Seed, o.Jobs, o.UniformSizes)
	for i := range out.Jobs {
		if err := o.train(&out.Jobs[i], kinds); err != nil {
			return nil, fmt.Errorf("make a hadar trace: %w", err)
		}
	}
	out.Order()
	if o.Arrive && len(out.Jobs) > 0 {
		out.FromZero()
	}
	for i := range out.Jobs {
		out.Jobs[i].ID = strconv.Itoa(i)
		if !o.Arrive {
			out.Jobs[i].Submit = 0
		}
	}
	return out, nil
}

// pick draws the jobs without replacement.
func (o *HadarOptions) pick() (picked []trace.Job, from string, err error) {
	d := newDraw(o.Seed, "hadar pick")
	sized := make([][]trace.Job, len(hadarSizes()))
	from = "Philly's distribution"
	base := o.Base
	if base == nil {
		base = o.synthetic()
	} else {
		from = base.Name
	}
	var all []trace.Job
	for i := range base.Jobs {
		job := base.Jobs[i]
		hour := math.Mod(job.Submit/3600, 24)
		size := sizeOf(job.GPUSeconds() / 3600)
		if job.MaxGPUs == 0 || size < 0 || o.Base != nil && (hour < o.FromHour || hour >= o.ToHour) {
			continue
		}
		job.App, job.Loss, job.Utility, job.Share = "", nil, nil, 1
		sized[size] = append(sized[size], job)
		all = append(all, job)
	}
	if !o.UniformSizes {
		sized = [][]trace.Job{all}
	}
	for range o.Jobs {
		pool := &sized[d.IntN(len(sized))]
		if len(*pool) == 0 {
			return nil, "", fmt.Errorf("make a hadar trace: %s has too few jobs of one size in hours %g to %g: "+
				"%d of %d were found", from, o.FromHour, o.ToHour, len(picked), o.Jobs)
		}
		i := d.IntN(len(*pool))
		picked = append(picked, (*pool)[i])
		last := len(*pool) - 1
		(*pool)[i] = (*pool)[last]
		*pool = (*pool)[:last]
	}
	return picked, from, nil
}

// synthetic returns jobs to pick from without a trace.
func (o *HadarOptions) synthetic() *trace.Trace {
	d, out := newDraw(o.Seed, "hadar base"), &trace.Trace{}
	for i := range 20 * o.Jobs {
		gpus := d.choose([]Choice{{1, .7}, {2, .1}, {4, .15}, {8, .05}})
		out.Jobs = append(out.Jobs, trace.Job{
			ID: strconv.Itoa(i), Submit: d.between(0, 7*3600), MinGPUs: gpus, MaxGPUs: gpus, Share: 1,
			// A tenth of Gavel's distribution, which begins at half an hour, has the mean of the real trace's jobs in
			// the paper's four sizes: 3.3 against 3.4 GPU-hours.
			Duration: d.phillyDuration() / 10, Weight: 1,
		})
	}
	return out
}

// train gives the job a model of its size.
func (o *HadarOptions) train(job *trace.Job, d draw) error {
	size := hadarSizes()[sizeOf(job.GPUSeconds()/3600)]
	family := size.families[d.IntN(len(size.families))]
	var models []string
	for _, m := range gavelModels() {
		name, _, _ := cutModel(m.name)
		if name == family && o.Throughputs.Largest(m.name, job.MaxGPUs, o.Reference) > 0 {
			models = append(models, m.name)
		}
	}
	if len(models) == 0 {
		return &trace.MissingError{Job: trace.JobType{Model: family, GPUs: job.MaxGPUs}, GPUType: o.Reference, Known: "the table has no such family of models"}
	}
	job.Model, job.Status = models[d.IntN(len(models))], size.name
	gpus := o.Throughputs.Largest(job.Model, job.MaxGPUs, o.Reference)
	job.Duration *= float64(job.MaxGPUs) / float64(gpus)
	job.MinGPUs, job.MaxGPUs, job.Nodes, job.MeasuredOn = gpus, gpus, 0, o.Reference
	speed, err := o.Throughputs.Isolated(job.Model, gpus, o.Reference)
	if err != nil {
		return err
	}
	job.TotalSteps = max(1, int64(math.Round(job.Duration*speed)))
	return nil
}
