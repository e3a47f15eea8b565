package trace

// readMuri reads the traces of Muri and of Tiresias, which have similar layouts; a header names the columns:
//
//	job_id          unique id
//	num_gpu         GPUs
//	submit_time     milliseconds in Muri, seconds in Tiresias
//	iterations      of training
//	model_name
//	batch_size      Muri only
//	duration        milliseconds in Muri, seconds in Tiresias
//	interval        since the job before
//	iteration_time  milliseconds; Muri only
//	resource_time_0, resource_time_1, resource_time_2   milliseconds of storage, CPU, GPU an iteration; Muri only
//	priority        Muri only; 1 for high
//
// The column iteration_time distinguishes the two. The priority is a class, not a weight, and becomes the status.
func readMuri(r *reader) error {
	t, err := r.csvTable(nil)
	if err != nil {
		return err
	}
	_, muri := t.columns["iteration_time"]
	unit := 1.0
	if muri {
		unit = 1000
	} else {
		r.trace.Report.Format = "tiresias csv"
	}
	return t.each(func(w *row) error {
		gpus := w.whole("num_gpu", 1)
		job := Job{
			ID:       w.text("job_id"),
			Submit:   w.number("submit_time") / unit,
			MinGPUs:  gpus,
			MaxGPUs:  gpus,
			Share:    1,
			Duration: w.number("duration") / unit,
			Model:    w.text("model_name"),
			Weight:   1,
		}
		if batch := w.text("batch_size"); batch != "" {
			job.Model += " (batch size " + batch + ")"
		}
		if w.text("iterations") != "" {
			job.TotalSteps = w.steps("iterations")
		}
		if p := w.text("priority"); p != "" {
			job.Status = "priority=" + p
		}
		return w.finish(job)
	})
}
