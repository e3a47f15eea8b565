package trace

const shockwaveColumns = 12

// readShockwave reads Shockwave's traces: Gavel's ten columns with two more, tab-separated, without header:
//
//	1 job type        5 needs data dir   9 priority
//	2 command         6 total steps     10 SLO
//	3 directory       7 scale factor    11 duration in seconds
//	4 step flag       8 mode            12 arrival in seconds
//
// Mode is how the batch size changes while the job runs: static, accordion or gns. The report counts the jobs whose size
// changes; they are read with their speed at the beginning.
func readShockwave(r *reader) error {
	t := r.tsvTable([]string{
		"job type", "command", "directory", "step flag", "needs data dir", "total steps",
		"scale factor", "mode", "priority", "SLO", "duration", "arrival",
	})
	return t.each(func(w *row) error {
		job := w.gavelJob()
		job.Duration = w.number("duration")
		switch mode := w.text("mode"); mode {
		case "static", "accordion", "gns":
			w.countRescaled(mode)
		default:
			w.bad("mode", "static, accordion or gns")
		}
		return w.finish(job)
	})
}
