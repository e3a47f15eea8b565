package trace

import "strconv"

const (
	gavelColumns   = 10
	gavelVCColumns = 7
)

// readGavel reads Gavel's traces, one job a line, tab-separated, without header:
//
//	 1 job type        "ResNet-18 (batch size 32)"
//	 2 command         with %s for the data's folder
//	 3 directory
//	 4 step flag       the command's option for the number of steps
//	 5 needs data dir  0 or 1
//	 6 total steps
//	 7 scale factor    GPUs
//	 8 priority        weight
//	 9 SLO             as a multiple of the run time; negative for none
//	10 arrival         seconds
//
// Jobs have neither an ID, for which their number from 0 is used, nor a duration, which is steps over throughput.
func readGavel(r *reader) error {
	t := r.tsvTable([]string{
		"job type", "command", "directory", "step flag", "needs data dir",
		"total steps", "scale factor", "priority", "SLO", "arrival",
	})
	return t.each(func(w *row) error { return w.finish(w.gavelJob()) })
}

func (w *row) gavelJob() Job {
	gpus := w.whole("scale factor", 1)
	job := Job{
		ID:         strconv.Itoa(w.trace.Report.Rows - 1),
		Submit:     w.number("arrival"),
		MinGPUs:    gpus,
		MaxGPUs:    gpus,
		Share:      1,
		TotalSteps: w.steps("total steps"),
		Model:      w.text("job type"),
		Weight:     w.number("priority"),
		SLO:        max(0, w.signed("SLO")),
	}
	if job.Model == "" {
		w.bad("job type", "a name")
	}
	return job
}

// readGavelVC reads the traces that Gavel's authors made from Philly's arrivals, one file for each virtual cluster;
// seven columns, tab-separated, without header:
//
//	1 job type
//	2 command         with %s for the folder
//	3 step flag
//	4 needs data dir  0 or 1
//	5 total steps
//	6 arrival         seconds
//	7 scale factor    GPUs
//
// The file's name is the virtual cluster, which becomes the tenant.
func readGavelVC(r *reader) error {
	t := r.tsvTable([]string{
		"job type", "command", "step flag", "needs data dir", "total steps", "arrival", "scale factor",
	})
	return t.each(func(w *row) error {
		gpus := w.whole("scale factor", 1)
		return w.finish(Job{
			ID:         strconv.Itoa(w.trace.Report.Rows - 1),
			Tenant:     w.trace.Name,
			Submit:     w.number("arrival"),
			MinGPUs:    gpus,
			MaxGPUs:    gpus,
			Share:      1,
			TotalSteps: w.steps("total steps"),
			Model:      w.text("job type"),
			Weight:     1,
		})
	})
}
