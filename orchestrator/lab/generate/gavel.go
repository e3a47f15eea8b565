package generate

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// GavelOptions are the options of Gavel's trace generator.
type GavelOptions struct {
	Seed uint64
	Jobs int
	// Lambda is the mean time between arrivals in seconds (Poisson); 0 for all jobs at the start.
	Lambda float64
	// Hours are the durations to choose from. Empty for Philly's distribution: 80 % of the jobs last 10^U(1.5, 3)
	// minutes and 20 % 10^U(3, 4) minutes.
	Hours []float64
	// Gangs are the gangs of models that can be distributed; the others use one GPU.
	Gangs []Choice
	// Priorities gives one job in five the weight 5.
	Priorities bool
	// SLOs gives every job an SLO of 1.2, 2 or 10 times its duration, each with probability 1/3.
	SLOs bool
	// Throughputs convert durations into steps, on GPUs of type Reference.
	Throughputs *trace.Throughputs
	Reference   string
}

// GavelDefaults returns the options of the trace for comparing Gavel's policies and Outbid's: 300 jobs with a mean gap
// of 900 s, 1 to 8 whole hours long (the generator's default is 1 to 4), gangs of 1, 2 and 4 GPUs in 70, 10 and 20 % of
// the jobs that can be distributed, V100 as reference.
func GavelDefaults(table *trace.Throughputs) GavelOptions {
	return GavelOptions{
		Jobs:        300,
		Lambda:      900,
		Hours:       []float64{1, 2, 3, 4, 5, 6, 7, 8},
		Gangs:       []Choice{{1, .7}, {2, .1}, {4, .2}},
		Throughputs: table,
		Reference:   "v100",
	}
}

// GavelContinuousDefaults returns the options of the paper's continuous experiments: Philly's durations and gangs of 1,
// 2, 4 and 8 GPUs in 70, 10, 15 and 5 % of the jobs.
func GavelContinuousDefaults(table *trace.Throughputs) GavelOptions {
	o := GavelDefaults(table)
	o.Hours, o.Gangs = nil, []Choice{{1, .7}, {2, .1}, {4, .15}, {8, .05}}
	return o
}

// gavelModel is a job type of Gavel's table of jobs.
type gavelModel struct {
	name        string
	distributed bool
}

// gavelModels returns Gavel's 26 job types, which are equally likely.
func gavelModels() []gavelModel {
	var models []gavelModel
	for _, family := range []struct {
		name        string
		batches     []int
		distributed bool
	}{
		{"ResNet-18", []int{16, 32, 64, 128, 256}, true},
		{"ResNet-50", []int{16, 32, 64, 128}, true},
		{"Transformer", []int{16, 32, 64, 128, 256}, true},
		{"LM", []int{5, 10, 20, 40, 80}, true},
		{"Recommendation", []int{512, 1024, 2048, 4096, 8192}, false},
	} {
		for _, batch := range family.batches {
			models = append(models, gavelModel{fmt.Sprintf("%s (batch size %d)", family.name, batch), family.distributed})
		}
	}
	return append(models, gavelModel{"A3C", false}, gavelModel{"CycleGAN", false})
}

// MakeGavel generates a workload with the distributions of Gavel's generator, but not its random numbers. Jobs have
// both their duration on the reference GPU and their steps.
func MakeGavel(o GavelOptions) (*trace.Trace, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	models := gavelModels()
	kinds, gaps := newDraw(o.Seed, "gavel kinds"), newDraw(o.Seed, "gavel gaps")
	lengths, gangs := newDraw(o.Seed, "gavel lengths"), newDraw(o.Seed, "gavel gangs")
	extras := newDraw(o.Seed, "gavel extras")
	out := &trace.Trace{Name: fmt.Sprintf("gavel-%d", o.Seed), Source: o.source()}
	now := 0.0
	for i := range o.Jobs {
		model := models[kinds.IntN(len(models))]
		gpus := 1
		if model.distributed {
			gpus = gangs.choose(o.Gangs)
		}
		if i > 0 {
			now += gaps.ExpFloat64() * o.Lambda
		}
		job := trace.Job{
			ID: strconv.Itoa(i), Submit: now, MinGPUs: gpus, MaxGPUs: gpus, Share: 1, Model: model.name, Weight: 1,
			Duration: o.duration(lengths), MeasuredOn: o.Reference,
		}
		speed, err := o.Throughputs.Isolated(model.name, gpus, o.Reference)
		if err != nil {
			return nil, fmt.Errorf("make a gavel trace: %w", err)
		}
		job.TotalSteps = max(1, int64(job.Duration*speed))
		if o.Priorities && extras.Float64() < .2 {
			job.Weight = 5
		}
		if o.SLOs {
			job.SLO = []float64{1.2, 2, 10}[extras.IntN(3)]
		}
		out.Jobs = append(out.Jobs, job)
	}
	return out, nil
}

func (o *GavelOptions) check() error {
	if o.Throughputs == nil {
		return errors.New("make a gavel trace: throughputs are missing: its jobs are measured in steps")
	}
	if !(o.Lambda >= 0 && o.Lambda <= trace.MaxSeconds) {
		return fmt.Errorf("make a gavel trace: lambda is %g: want seconds, 0 or more", o.Lambda)
	}
	for _, h := range o.Hours {
		if err := positive("make a gavel trace", setting{"hours", h}); err != nil {
			return err
		}
	}
	if err := checkChoices("make a gavel trace: gangs", o.Gangs); err != nil {
		return err
	}
	return positive("make a gavel trace", setting{"jobs", float64(o.Jobs)})
}

func (o *GavelOptions) duration(d draw) float64 {
	if len(o.Hours) > 0 {
		return 3600 * o.Hours[d.IntN(len(o.Hours))]
	}
	return d.phillyDuration()
}

// phillyDuration draws a run time from the Philly trace as described by Gavel's authors.
func (d draw) phillyDuration() float64 {
	if d.Float64() < .8 {
		return 60 * math.Pow(10, d.between(1.5, 3))
	}
	return 60 * math.Pow(10, d.between(3, 4))
}

func (o *GavelOptions) source() string {
	return fmt.Sprintf("made as Gavel's generator does: seed %d, lambda %g s, hours %v, gangs %v, reference %s",
		o.Seed, o.Lambda, o.Hours, o.Gangs, o.Reference)
}
