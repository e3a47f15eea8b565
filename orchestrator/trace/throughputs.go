package trace

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Spread is the suffix of a GPU type for the throughput of a gang whose devices are not close together:
// "v100_unconsolidated".
const Spread = "_unconsolidated"

// JobType is the object of a throughput measurement: a model with a number of GPUs.
type JobType struct {
	Model string
	GPUs  int
}

// String returns the type as in Gavel's tables, for errors.
func (j JobType) String() string { return fmt.Sprintf("%s on %d GPUs", j.Model, j.GPUs) }

// Throughputs are training speeds in steps per second. A speed of 0 means that the job does not fit on that type.
type Throughputs struct {
	// Source is the file they were read from.
	Source   string
	isolated map[string]map[JobType]float64
	pairs    map[string]map[[2]JobType][2]float64
}

// MissingError is the error for a speed that a table does not have.
type MissingError struct {
	Job     JobType
	GPUType string
	// NoType is set if the table does not have the GPU type at all.
	NoType bool
	// Known describes what the table has.
	Known string
}

// Error returns the job type, the GPU type and Known.
func (e *MissingError) Error() string {
	return fmt.Sprintf("no throughput of %s of type %s: %s", e.Job, e.GPUType, e.Known)
}

func newThroughputs(source string) *Throughputs {
	return &Throughputs{
		Source:   source,
		isolated: make(map[string]map[JobType]float64),
		pairs:    make(map[string]map[[2]JobType][2]float64),
	}
}

func (t *Throughputs) set(gpuType string, job JobType, speed float64) {
	if t.isolated[gpuType] == nil {
		t.isolated[gpuType] = make(map[JobType]float64)
	}
	t.isolated[gpuType][job] = speed
}

func (t *Throughputs) setPair(gpuType string, a, b JobType, speeds [2]float64) {
	if t.pairs[gpuType] == nil {
		t.pairs[gpuType] = make(map[[2]JobType][2]float64)
	}
	t.pairs[gpuType][[2]JobType{a, b}] = speeds
}

// GPUTypes returns the types in the table, sorted, without those of spread gangs.
func (t *Throughputs) GPUTypes() []string {
	var types []string
	for _, name := range slices.Sorted(maps.Keys(t.isolated)) {
		if !strings.HasSuffix(name, Spread) {
			types = append(types, name)
		}
	}
	return types
}

// JobTypes returns those measured alone on a GPU type, sorted by model and GPUs.
func (t *Throughputs) JobTypes(gpuType string) []JobType {
	return slices.SortedFunc(maps.Keys(t.isolated[gpuType]), func(a, b JobType) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.GPUs, b.GPUs))
	})
}

// Len returns the number of isolated speeds in the table.
func (t *Throughputs) Len() int {
	n := 0
	for _, speeds := range t.isolated {
		n += len(speeds)
	}
	return n
}

// Isolated returns the speed of a model with a number of GPUs of a type, alone and close together, or spread if the
// type's name ends in Spread. It returns a *MissingError if the table does not have it.
func (t *Throughputs) Isolated(model string, gpus int, gpuType string) (float64, error) {
	job := JobType{model, gpus}
	if speed, ok := t.isolated[gpuType][job]; ok {
		return speed, nil
	}
	_, measured := t.isolated[gpuType]
	return 0, &MissingError{Job: job, GPUType: gpuType, NoType: !measured, Known: t.known(job, gpuType)}
}

// known describes what the table has instead.
func (t *Throughputs) known(job JobType, gpuType string) string {
	speeds, ok := t.isolated[gpuType]
	if !ok {
		return "the table's types are " + strings.Join(slices.Sorted(maps.Keys(t.isolated)), ", ")
	}
	var sizes []int
	for other := range speeds {
		if other.Model == job.Model {
			sizes = append(sizes, other.GPUs)
		}
	}
	if len(sizes) == 0 {
		return fmt.Sprintf("the table does not have that model among its %d", len(speeds))
	}
	slices.Sort(sizes)
	return fmt.Sprintf("the table has that model with %s GPUs", strings.Trim(fmt.Sprint(sizes), "[]"))
}

// Pair returns the speeds of two jobs that share the same GPUs, in the order of the arguments. It returns a
// *MissingError for the first if the table does not have them.
func (t *Throughputs) Pair(a, b JobType, gpuType string) (speedA, speedB float64, err error) {
	if speeds, ok := t.pairs[gpuType][[2]JobType{a, b}]; ok {
		return speeds[0], speeds[1], nil
	}
	if speeds, ok := t.pairs[gpuType][[2]JobType{b, a}]; ok {
		return speeds[1], speeds[0], nil
	}
	return 0, 0, &MissingError{Job: a, GPUType: gpuType, Known: "it was not measured together with " + b.String()}
}

// Largest returns the size of the largest gang of a model, up to gpus, that runs on a type, or 0.
func (t *Throughputs) Largest(model string, gpus int, gpuType string) int {
	best := 0
	for job, speed := range t.isolated[gpuType] {
		if job.Model == model && speed > 0 && job.GPUs <= gpus {
			best = max(best, job.GPUs)
		}
	}
	return best
}

// Timed returns the trace with every duration set to steps over throughput on a GPU type, which is how Gavel interprets
// its traces. Jobs without steps or model keep their duration.
func (t *Trace) Timed(table *Throughputs, gpuType string) (*Trace, error) {
	return t.convert(table, gpuType, func(job *Job, speed float64) {
		if job.TotalSteps > 0 {
			job.Duration, job.MeasuredOn = float64(job.TotalSteps)/speed, gpuType
		}
	})
}

// Stepped returns the trace with the steps set to duration times throughput on a GPU type. Jobs without duration or
// model keep their steps.
func (t *Trace) Stepped(table *Throughputs, gpuType string) (*Trace, error) {
	return t.convert(table, gpuType, func(job *Job, speed float64) {
		if job.Duration > 0 {
			job.TotalSteps = int64(math.Round(job.Duration * speed))
		}
	})
}

func (t *Trace) convert(table *Throughputs, gpuType string, change func(*Job, float64)) (*Trace, error) {
	out := t.With(slices.Clone(t.Jobs))
	for i := range out.Jobs {
		job := &out.Jobs[i]
		if job.Model == "" || job.TotalSteps == 0 && job.Duration == 0 || job.MaxGPUs == 0 {
			continue
		}
		speed, err := table.Isolated(job.Model, job.MaxGPUs, gpuType)
		if err != nil {
			return nil, fmt.Errorf("job %s: %w", job.ID, err)
		}
		if speed == 0 {
			return nil, fmt.Errorf("job %s: %s does not run on %s: its throughput there is 0",
				job.ID, JobType{job.Model, job.MaxGPUs}, gpuType)
		}
		change(job, speed)
	}
	return out, nil
}
