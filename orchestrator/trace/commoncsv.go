package trace

import (
	"math"
	"strconv"
	"strings"
)

func commonColumns() []string {
	return []string{"job_id", "submit_s", "num_gpus", "duration_s", "tenant", "status", "model", "gpu_type", "extra"}
}

// readCommonCSV reads a common layout for traces of several clusters:
//
//	job_id      unique id
//	submit_s    seconds from the trace's start
//	num_gpus    gang size; 0 for a job without GPU
//	duration_s  run time on those GPUs; may be empty
//	tenant      virtual cluster, or quality of service
//	status      final state
//	model       job type, as in Gavel's tables
//	gpu_type    the type on which duration_s was measured (not a demand)
//	extra       key=value;…: steps or iters, priority (a weight), user, nodes, mode, bs, cpu_milli, mem_mib, gpu_milli
//
// Keys of extra that are not listed are ignored.
func readCommonCSV(r *reader) error {
	t, err := r.csvTable(nil)
	if err != nil {
		return err
	}
	return t.each(func(w *row) error {
		gpus := w.whole("num_gpus", 0)
		job := Job{
			ID:         w.text("job_id"),
			Tenant:     w.text("tenant"),
			Submit:     w.number("submit_s"),
			MinGPUs:    gpus,
			MaxGPUs:    gpus,
			Share:      1,
			Duration:   w.optional("duration_s"),
			MeasuredOn: w.text("gpu_type"),
			Model:      w.text("model"),
			Weight:     1,
			Status:     w.text("status"),
		}
		w.commonExtra(&job)
		return w.finish(job)
	})
}

func (w *row) commonExtra(job *Job) {
	for pair := range strings.SplitSeq(w.text("extra"), ";") {
		key, value, _ := strings.Cut(pair, "=")
		if value == "" {
			continue
		}
		switch key {
		case "user":
			job.User = value
		case "mode":
			w.countRescaled(value)
		case "bs":
			job.Model += " (batch size " + value + ")"
		case "steps", "iters", "nodes", "priority", "cpu_milli", "mem_mib", "gpu_milli":
			v, err := strconv.ParseFloat(value, 64)
			if err != nil || !(v >= 0 && v <= MaxSeconds) {
				w.bad("extra", key+" as a number, 0 or more")
				return
			}
			job.commonNumber(key, v)
		}
	}
}

func (j *Job) commonNumber(key string, v float64) {
	switch key {
	case "steps", "iters":
		j.TotalSteps = int64(v)
	case "nodes":
		j.Nodes = int(v)
	case "priority":
		j.Weight = v
	case "cpu_milli":
		j.CPUs = v / 1000
	case "mem_mib":
		j.Memory = int64(v) << 20
	case "gpu_milli":
		if j.MaxGPUs == 1 && v > 0 {
			j.Share = math.Min(1, v/1000)
		}
	}
}
