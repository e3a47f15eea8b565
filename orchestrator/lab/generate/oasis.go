package generate

import (
	"fmt"
	"math"
	"strconv"

	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// OASiSOptions describe the simulations of the OASiS paper, section V-A. Ranges are [low, high].
type OASiSOptions struct {
	Seed uint64
	Jobs int
	// Slots is T. SlotSeconds is the length of a slot, which the paper gives only for its testbed (20 minutes).
	Slots       int
	SlotSeconds float64
	// WorkerServers (H) and PSServers (K), and their network in Gb/s.
	WorkerServers, PSServers int
	ServerGbps               [2]float64
	// Epochs (E), Chunks (N), Batches (M) of a chunk, BatchSlots (tau) of a mini-batch and gradient MB (e).
	Epochs, Chunks, Batches [2]int
	BatchSlots, GradientMB  [2]float64
	// The needs of a worker.
	WorkerGPUs, WorkerCPUs, WorkerGB, WorkerDiskGB [2]int
	WorkerGbps                                     [2]float64
	// The needs of a parameter server.
	PSCPUs, PSGB, PSDiskGB [2]int
	PSGbps                 [2]float64
	// Priority (gamma 1) and Target in slots (gamma 3) of the utilities; Decay (gamma 2) of sensitive and critical
	// jobs.
	Priority, Target, Sensitive, Critical [2]float64
	// Insensitive and CriticalPart are the parts of such jobs; the rest is sensitive.
	Insensitive, CriticalPart float64
	// Burst is the standard deviation of the logarithm of the arrival rate from slot to slot; 0 for Poisson.
	Burst float64
}

// OASiSDefaults returns the paper's options: T = 300, 50 + 50 servers, and its ranges; 10 % of the jobs insensitive to
// time and 35 % critical; 200 jobs, as in its figure 4. The paper's arrivals follow the Google cluster's pattern. Here
// the rate of a slot is lognormal around its mean, to imitate that pattern's bursts.
func OASiSDefaults() OASiSOptions {
	return OASiSOptions{
		Jobs: 200, Slots: 300, SlotSeconds: 1200,
		WorkerServers: 50, PSServers: 50, ServerGbps: [2]float64{20, 50},
		Epochs: [2]int{50, 200}, Chunks: [2]int{5, 100}, Batches: [2]int{10, 100},
		BatchSlots: [2]float64{.001, .1}, GradientMB: [2]float64{30, 575},
		WorkerGPUs: [2]int{0, 4}, WorkerCPUs: [2]int{1, 10}, WorkerGB: [2]int{2, 32}, WorkerDiskGB: [2]int{5, 10},
		WorkerGbps: [2]float64{.1, 5},
		PSCPUs:     [2]int{1, 10}, PSGB: [2]int{2, 32}, PSDiskGB: [2]int{5, 10}, PSGbps: [2]float64{5, 20},
		Priority: [2]float64{1, 100}, Target: [2]float64{1, 15},
		Sensitive: [2]float64{.01, 1}, Critical: [2]float64{4, 6}, Insensitive: .1, CriticalPart: .35,
		Burst: .7,
	}
}

// Needs are the needs of one worker or parameter server.
type Needs struct {
	GPUs, CPUs, GB, DiskGB int
	Gbps                   float64
}

// OASiSJob is a job in the paper's terms.
type OASiSJob struct {
	ID string
	// Slot is the slot of its arrival (a).
	Slot int
	// Epochs (E), Chunks (N) and Batches (M) of a chunk.
	Epochs, Chunks, Batches int
	// BatchSlots (tau) in slots, GradientMB (e).
	BatchSlots, GradientMB float64
	Worker, PS             Needs
	// Priority (gamma 1), Decay per slot (gamma 2), Target in slots (gamma 3).
	Priority, Decay, Target float64
	// Class is insensitive, sensitive or critical.
	Class string
}

// OASiSWorkload is the workload of the paper's simulations.
type OASiSWorkload struct {
	Name        string
	Slots       int
	SlotSeconds float64
	// WorkerServerGbps and PSServerGbps are the networks of the servers.
	WorkerServerGbps, PSServerGbps []float64
	Jobs                           []OASiSJob
	source                         string
}

// BatchTime returns the time of one mini-batch on a worker, in slots: tau + 2e/b.
func (j *OASiSJob) BatchTime(slotSeconds float64) float64 {
	return j.BatchSlots + 2*j.GradientMB*8e6/(j.Worker.Gbps*1e9)/slotSeconds
}

// MakeOASiS generates the workload of the paper's simulations.
func MakeOASiS(o OASiSOptions) (*OASiSWorkload, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	servers := newDraw(o.Seed, "oasis servers")
	out := &OASiSWorkload{Name: fmt.Sprintf("oasis-%d", o.Seed), Slots: o.Slots, SlotSeconds: o.SlotSeconds}
	out.source = fmt.Sprintf("made with the figures of the OASiS paper: seed %d, %d jobs in %d slots of %g s",
		o.Seed, o.Jobs, o.Slots, o.SlotSeconds)
	for range o.WorkerServers {
		out.WorkerServerGbps = append(out.WorkerServerGbps, servers.between(o.ServerGbps[0], o.ServerGbps[1]))
	}
	for range o.PSServers {
		out.PSServerGbps = append(out.PSServerGbps, servers.between(o.ServerGbps[0], o.ServerGbps[1]))
	}
	jobs := newDraw(o.Seed, "oasis jobs")
	for i, slot := range o.arrivals() {
		job := o.job(jobs)
		job.ID, job.Slot = strconv.Itoa(i), slot
		out.Jobs = append(out.Jobs, job)
	}
	return out, nil
}

func (o *OASiSOptions) check() error {
	const maker = "make an oasis workload"
	for _, r := range []struct {
		name string
		low  float64
		high float64
	}{
		{"server gb/s", o.ServerGbps[0], o.ServerGbps[1]},
		{"epochs", float64(o.Epochs[0]), float64(o.Epochs[1])},
		{"chunks", float64(o.Chunks[0]), float64(o.Chunks[1])},
		{"batches", float64(o.Batches[0]), float64(o.Batches[1])},
		{"batch slots", o.BatchSlots[0], o.BatchSlots[1]},
		{"gradient MB", o.GradientMB[0], o.GradientMB[1]},
		{"worker gpus + 1", float64(o.WorkerGPUs[0] + 1), float64(o.WorkerGPUs[1] + 1)},
		{"worker cpus", float64(o.WorkerCPUs[0]), float64(o.WorkerCPUs[1])},
		{"worker gb", float64(o.WorkerGB[0]), float64(o.WorkerGB[1])},
		{"worker disk gb", float64(o.WorkerDiskGB[0]), float64(o.WorkerDiskGB[1])},
		{"worker gb/s", o.WorkerGbps[0], o.WorkerGbps[1]},
		{"ps gb/s", o.PSGbps[0], o.PSGbps[1]},
		{"ps cpus", float64(o.PSCPUs[0]), float64(o.PSCPUs[1])},
		{"ps gb", float64(o.PSGB[0]), float64(o.PSGB[1])},
		{"ps disk gb", float64(o.PSDiskGB[0]), float64(o.PSDiskGB[1])},
		{"priority", o.Priority[0], o.Priority[1]},
		{"target", o.Target[0], o.Target[1]},
		{"sensitive", o.Sensitive[0], o.Sensitive[1]},
		{"critical", o.Critical[0], o.Critical[1]},
	} {
		if !trace.Finite(r.low, r.high) || r.low <= 0 || r.high < r.low {
			return fmt.Errorf("%s: %s is %g to %g: want 0 < low <= high", maker, r.name, r.low, r.high)
		}
	}
	if !(o.Insensitive >= 0 && o.CriticalPart >= 0 && o.Insensitive+o.CriticalPart <= 1) || !(o.Burst >= 0) {
		return fmt.Errorf("%s: insensitive %g, critical %g, burst %g: want parts of at most 1 together, none below 0",
			maker, o.Insensitive, o.CriticalPart, o.Burst)
	}
	return positive(maker, setting{"jobs", float64(o.Jobs)}, setting{"slots", float64(o.Slots)},
		setting{"slot seconds", o.SlotSeconds}, setting{"worker servers", float64(o.WorkerServers)},
		setting{"ps servers", float64(o.PSServers)})
}

// arrivals returns the slots in which the jobs arrive, in order. It draws a rate for each slot, and the jobs by those
// rates.
func (o *OASiSOptions) arrivals() []int {
	d := newDraw(o.Seed, "oasis arrivals")
	sums, total := make([]float64, o.Slots), 0.0
	for t := range sums {
		total += d.lognormal(1, o.Burst)
		sums[t] = total
	}
	counts := make([]int, o.Slots)
	for range o.Jobs {
		at, t := d.Float64()*total, 0
		for t < o.Slots-1 && sums[t] <= at {
			t++
		}
		counts[t]++
	}
	var slots []int
	for t, n := range counts {
		for range n {
			slots = append(slots, t)
		}
	}
	return slots
}

func (o *OASiSOptions) job(d draw) OASiSJob {
	among := func(r [2]int) int { return d.whole(r[0], r[1]) }
	within := func(r [2]float64) float64 { return d.between(r[0], r[1]) }
	job := OASiSJob{
		Epochs: among(o.Epochs), Chunks: among(o.Chunks), Batches: among(o.Batches),
		BatchSlots: within(o.BatchSlots), GradientMB: within(o.GradientMB),
		Worker: Needs{
			among(o.WorkerGPUs), among(o.WorkerCPUs), among(o.WorkerGB), among(o.WorkerDiskGB), within(o.WorkerGbps),
		},
		PS:       Needs{0, among(o.PSCPUs), among(o.PSGB), among(o.PSDiskGB), within(o.PSGbps)},
		Priority: within(o.Priority), Target: within(o.Target),
	}
	switch class := d.Float64(); {
	case class < o.Insensitive:
		job.Class = "insensitive"
	case class < o.Insensitive+o.CriticalPart:
		job.Class, job.Decay = "critical", within(o.Critical)
	default:
		job.Class, job.Decay = "sensitive", within(o.Sensitive)
	}
	return job
}

// Trace returns the workload in neutral form, for policies that do not distinguish workers and parameter servers. A job
// has from one worker to one for each chunk, and its Duration is that with all of them. A step is a mini-batch. A
// worker without a GPU stays without.
func (w *OASiSWorkload) Trace() *trace.Trace {
	out := &trace.Trace{Name: w.Name, Source: w.source}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		job := trace.Job{
			ID: j.ID, Submit: float64(j.Slot) * w.SlotSeconds, Share: 1, Weight: 1, Status: j.Class,
			MinGPUs: j.Worker.GPUs, MaxGPUs: j.Worker.GPUs * j.Chunks,
			Duration:   float64(j.Epochs*j.Batches) * j.BatchTime(w.SlotSeconds) * w.SlotSeconds,
			TotalSteps: int64(j.Epochs) * int64(j.Chunks) * int64(j.Batches),
			CPUs:       float64(j.Worker.CPUs * j.Chunks), Memory: int64(j.Worker.GB*j.Chunks) << 30,
			Utility: &trace.Utility{Priority: j.Priority, Decay: j.Decay / w.SlotSeconds, Target: j.Target * w.SlotSeconds},
		}
		job.Duration = math.Min(job.Duration, trace.MaxSeconds)
		out.Jobs = append(out.Jobs, job)
	}
	return out
}
