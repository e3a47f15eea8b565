package trace

import "strings"

// readOpenb reads the pods of Alibaba's GPU cluster of 2023, openb_pod_list_*.csv, one pod a row under a header:
//
//	name            unique name
//	cpu_milli       CPUs in thousandths
//	memory_mib      main memory in MiB
//	num_gpu         0 to 8
//	gpu_milli       part of the GPU in thousandths, where num_gpu is 1
//	gpu_spec        types allowed, as V100M16|V100M32; empty for any
//	qos             LS, BE, Burstable or Guaranteed
//	pod_phase       Running, Succeeded, Failed or Pending
//	creation_time   seconds
//	deletion_time   seconds
//	scheduled_time  seconds; empty if never scheduled
//
// The quality of service is used as the tenant, which is not published. A pod's duration is from being scheduled to
// deletion, or from creation to deletion if it was never scheduled.
func readOpenb(r *reader) error {
	t, err := r.csvTable(nil)
	if err != nil {
		return err
	}
	return t.each(func(w *row) error {
		gpus := w.whole("num_gpu", 0)
		job := Job{
			ID:      w.text("name"),
			Tenant:  w.text("qos"),
			Submit:  w.number("creation_time"),
			MinGPUs: gpus,
			MaxGPUs: gpus,
			Share:   1,
			Weight:  1,
			Status:  w.text("pod_phase"),
			CPUs:    w.optional("cpu_milli") / 1000,
			Memory:  int64(w.optional("memory_mib")) << 20,
		}
		start := job.Submit
		if w.text("scheduled_time") != "" {
			start = w.number("scheduled_time")
		}
		end := w.number("deletion_time")
		if job.Duration = end - start; end < max(start, job.Submit) {
			w.bad("deletion_time", "a time not before creation_time and scheduled_time")
		}
		if milli := w.optional("gpu_milli"); gpus == 1 && milli > 0 {
			if milli > 1000 {
				w.bad("gpu_milli", "0 to 1000")
			}
			job.Share = milli / 1000
		}
		for kind := range strings.SplitSeq(w.text("gpu_spec"), "|") {
			if kind != "" && kind != "nan" {
				job.GPUTypes = append(job.GPUTypes, kind)
			}
		}
		return w.finish(job)
	})
}
