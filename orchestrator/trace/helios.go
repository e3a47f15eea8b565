package trace

import (
	"math"
	"time"
)

// wallClock is the format of times in Philly and Helios: local, without a zone.
const wallClock = "2006-01-02 15:04:05"

// readHelios reads SenseTime's Helios traces (Venus, Earth, Saturn, Uranus), cluster_log.csv, one job a row under a
// header; the order of the columns is free:
//
//	job_id       unique id
//	user         hashed user
//	vc           hashed virtual cluster
//	gpu_num      GPUs required; 0 for a CPU job
//	cpu_num      CPUs required
//	node_num     nodes
//	state        COMPLETED, CANCELLED, FAILED, TIMEOUT or NODE_FAIL
//	submit_time  2020-06-09 18:41:01, local
//	start_time   likewise
//	end_time     likewise
//	duration     end - start in seconds
//	queue        start - submit in seconds
//
// Seconds are counted from the first submission.
func readHelios(r *reader) error {
	t, err := r.csvTable(nil)
	if err != nil {
		return err
	}
	err = t.each(func(w *row) error {
		gpus := w.whole("gpu_num", 0)
		tenant := w.text("vc")
		if _, has := w.columns["vc"]; !has {
			tenant = w.text("user")
		}
		return w.finish(Job{
			ID:       w.text("job_id"),
			Tenant:   tenant,
			User:     w.text("user"),
			Submit:   w.wallClock("submit_time"),
			MinGPUs:  gpus,
			MaxGPUs:  gpus,
			Share:    1,
			Nodes:    w.whole("node_num", 0),
			Duration: w.number("duration"),
			Weight:   1,
			Status:   w.text("state"),
			CPUs:     w.optional("cpu_num"),
		})
	})
	r.trace.FromZero()
	return err
}

// wallClock returns a time as seconds since 1970.
func (w *row) wallClock(column string) float64 {
	at, err := time.Parse(wallClock, w.text(column))
	if err != nil || at.Unix() < 0 {
		w.bad(column, "a time such as "+wallClock)
		return 0
	}
	return float64(at.Unix())
}

// FromZero makes arrivals count from the first one.
func (t *Trace) FromZero() {
	start := math.Inf(1)
	for i := range t.Jobs {
		start = min(start, t.Jobs[i].Submit)
	}
	for i := range t.Jobs {
		t.Jobs[i].Submit -= start
	}
}
