package measure

import (
	"math"
	"slices"
	"time"
)

// Result is the figures of a run. Times are in seconds.
type Result struct {
	Policy             string  `json:"policy"`                // name of the policy
	Jobs               int     `json:"jobs"`                  // jobs that completed
	Makespan           float64 `json:"makespan_s"`            // from the first arrival to the last end
	JCTMean            float64 `json:"jct_mean_s"`            // job completion time: from a job's arrival to its end; mean
	JCTP50             float64 `json:"jct_p50_s"`             // its median
	JCTP95             float64 `json:"jct_p95_s"`             // its 95th percentile
	JCTP99             float64 `json:"jct_p99_s"`             // its 99th percentile
	QueueMean          float64 `json:"queue_mean_s"`          // time in which a job wanted devices and held none; mean
	SlowdownMean       float64 `json:"slowdown_mean"`         // completion time over the time alone and undisturbed; mean
	RhoMax             float64 `json:"rho_max"`               // finish-time fairness of apps, T_sh / T_id (Themis); the worst
	RhoP95             float64 `json:"rho_p95"`               // its 95th percentile
	RhoMean            float64 `json:"rho_mean"`              // its mean
	RhoWeighted        float64 `json:"rho_weighted"`          // mean of rho, weighted by T_cluster
	RhoBound           float64 `json:"rho_bound"`             // time in which there was an app over the sum of T_cluster: no schedule has a rho_weighted above it
	JainRho            float64 `json:"jain_rho"`              // Jain's index of rho: 1 if all are equal
	SIViolations       int     `json:"si_violations"`         // apps whose rho is above 1: sharing was no gain
	ShareSlowdownMax   float64 `json:"share_slowdown_max"`    // time of apps over the least that each takes alone on a real 1/N of the cluster; the worst
	ShareSlowdownMean  float64 `json:"share_slowdown_mean"`   // its mean
	ShareViolations    int     `json:"share_violations"`      // apps for which that is above 1
	AloneSlowdownMax   float64 `json:"alone_slowdown_max"`    // time of apps over that of the same app simulated alone on its share; the worst; 0 unless asked for
	AloneSlowdownMean  float64 `json:"alone_slowdown_mean"`   // its mean
	AloneViolations    int     `json:"alone_violations"`      // apps for which that is above 1
	SlowdownMax        float64 `json:"slowdown_max"`          // the worst slowdown
	StaticRhoMax       float64 `json:"rho_static_max"`        // slowdown over max(1, jobs / devices), as Shockwave's simulator has rho; the worst
	StaticViolations   int     `json:"rho_static_violations"` // jobs for which that is above 1
	GPUSeconds         float64 `json:"gpu_seconds"`           // device time that jobs held
	Utilization        float64 `json:"utilization"`           // device time in which jobs trained over all until the last end
	PlacementScoreMean float64 `json:"placement_score_mean"`  // 1/S (Themis), mean over held device time
	Preemptions        int     `json:"preemptions"`           // leases that were taken from jobs
	JobSharingLoss     float64 `json:"job_sharing_loss"`      // share of jobs whose long-term rho (ASTRAEA) is below 0.95
	TenantSharingLoss  float64 `json:"tenant_sharing_loss"`   // share of tenants' intervals with a long-term rho below 1
	UtilityTotal       float64 `json:"utility_total"`         // sum of what the jobs' ends were worth (OASiS)
	LateMean           float64 `json:"late_mean_s"`           // end after its target of a job whose utility falls, but not steeply (from 9/10 to 1/10 in more than half an hour); mean
	LateSD             float64 `json:"late_sd_s"`             // its standard deviation
	LateSteepMean      float64 `json:"late_steep_mean_s"`     // the same of those whose utility falls steeply; mean
	LateSteepSD        float64 `json:"late_steep_sd_s"`       // its standard deviation
	DecisionMillisP50  float64 `json:"decision_ms_p50"`       // time that a decision took, in ms; median
	DecisionMillisP95  float64 `json:"decision_ms_p95"`       // its 95th percentile
	DecisionMillisMax  float64 `json:"decision_ms_max"`       // the longest
	Wall               float64 `json:"wall_s"`                // time that the run itself took
	Failed             int     `json:"failed"`                // jobs that failed or were dropped
	Unfinished         int     `json:"unfinished"`            // jobs that had not ended when the run did
	Apps               int     `json:"apps"`                  // apps that ended and have a rho
	Leases             int     `json:"leases"`                // leases that were granted
	Decisions          int     `json:"decisions"`             // decisions that the policy made
	Events             int     `json:"events"`                // events that the run made
	EventsPerSecond    float64 `json:"events_per_s"`          // events over wall_s
	PeakMemory         int64   `json:"peak_memory_bytes"`     // most memory that the process held
	Series             Series  `json:"-"`
}

// Series are the data of figures.
type Series struct {
	// JCT and Slowdown of jobs and Rho of apps, sorted.
	JCT, Slowdown, Rho []float64
	// Fates of apps, in the order of their ends.
	Fates []Fate
	// Utilisation over time; at most a few thousand points.
	Utilisation []Point
	// Bars of the Gantt chart, in the order of their ends, and the number of further ones.
	Bars        []Bar
	BarsLeftOut int
}

// Fate is the outcome of an app: rho = T_sh / (T_cluster * N_avg). Times are in seconds.
type Fate struct {
	Policy        string  `json:"policy"`           // name of the policy
	App           string  `json:"app"`              // name of the app in the trace, or of the job that is one on its own
	Sweep         string  `json:"sweep"`            // its id in the run's ledger
	Tenant        string  `json:"tenant"`           // whose it is
	Jobs          int     `json:"jobs"`             // jobs that it has had
	Submitted     float64 `json:"submitted_s"`      // when it came, from the first arrival
	Shared        float64 `json:"shared_s"`         // T_sh: from then to its end
	Alone         float64 `json:"alone_s"`          // T_cluster: its work over the devices that it can use of the whole cluster (equation 2)
	MeanApps      float64 `json:"mean_apps"`        // N_avg: mean number of apps over its life
	Rho           float64 `json:"rho"`              // shared_s / (alone_s * mean_apps)
	Share         float64 `json:"share_s"`          // the least that it takes alone on a real 1/mean_apps of the cluster, its phases one after the other
	ShareSlowdown float64 `json:"share_slowdown"`   // shared_s / share_s
	AloneOnShare  float64 `json:"alone_on_share_s"` // what it took when simulated alone on its share; 0 if that was not done
	AloneSlowdown float64 `json:"alone_slowdown"`   // shared_s / alone_on_share_s
	DeviceSeconds float64 `json:"device_seconds"`   // device time that its jobs held
}

// Cost is the cost of a run.
type Cost struct {
	Wall       time.Duration
	Events     int
	PeakMemory int64
}

// Result returns the figures so far. The error is the first invalid fact, which makes the figures unreliable.
func (m *Meter) Result(cost Cost) (Result, error) {
	jcts, slowdowns, rhos := sorted(m.jcts), sorted(m.slowdowns), make([]float64, len(m.fates))
	shares, slower := make([]float64, len(m.fates)), 0
	for i := range m.fates {
		rhos[i], shares[i] = m.fates[i].Rho, m.fates[i].ShareSlowdown
		if shares[i] > 1+1e-9 {
			slower++
		}
	}
	slices.Sort(rhos)
	slices.Sort(shares)
	decisions := make([]float64, len(m.decisions))
	for i, d := range m.decisions {
		decisions[i] = float64(d)
	}
	slices.Sort(decisions)
	r := Result{
		Policy: m.cfg.Policy, Jobs: len(jcts), Makespan: max(0, m.last-m.first),
		JCTMean: mean(jcts), JCTP50: quantile(jcts, .50), JCTP95: quantile(jcts, .95), JCTP99: quantile(jcts, .99),
		QueueMean: mean(sorted(m.queues)), SlowdownMean: mean(slowdowns),
		RhoWeighted: m.rhoWeighted(), RhoBound: m.rhoBound(),
		RhoMax: quantile(rhos, 1), RhoP95: quantile(rhos, .95), RhoMean: mean(rhos), JainRho: jain(rhos),
		ShareSlowdownMax: quantile(shares, 1), ShareSlowdownMean: mean(shares), ShareViolations: slower,
		SIViolations: m.rhosOverOne, GPUSeconds: m.heldSeconds,
		Utilization: ratio(m.usedAtEnd, m.deviceSecondsAtEnd), PlacementScoreMean: m.placement(),
		Preemptions: m.preemptions, JobSharingLoss: ratio(float64(m.unfair), float64(m.fair)),
		TenantSharingLoss: m.tenantLoss(), UtilityTotal: m.utility,
		LateMean: mean(m.late), LateSD: deviation(m.late), LateSteepMean: mean(m.lateSteep), LateSteepSD: deviation(m.lateSteep),
		DecisionMillisP50: quantile(decisions, .5), DecisionMillisP95: quantile(decisions, .95),
		DecisionMillisMax: quantile(decisions, 1),
		Wall:              cost.Wall.Seconds(), Failed: m.failed, Apps: len(rhos), Leases: m.leases, Decisions: len(decisions),
		Events: cost.Events, EventsPerSecond: ratio(float64(cost.Events), cost.Wall.Seconds()), PeakMemory: cost.PeakMemory,
	}
	_, r.Unfinished = m.Done()
	r.static(slowdowns, m.mostDevices)
	r.Series = Series{
		JCT: jcts, Slowdown: slowdowns, Rho: rhos, Fates: m.fates, Utilisation: m.line.points(), Bars: m.bars, BarsLeftOut: m.barsLeftOut,
	}
	return r, m.err
}

// Against compares every app with itself alone on its share. seconds are the times that the Fates take there, or 0 if
// unknown.
func (r *Result) Against(seconds []float64) {
	var slowdowns []float64
	for i, alone := range seconds {
		if alone <= 0 {
			continue
		}
		f := &r.Series.Fates[i]
		f.AloneOnShare, f.AloneSlowdown = alone, f.Shared/alone
		slowdowns = append(slowdowns, f.AloneSlowdown)
	}
	slices.Sort(slowdowns)
	r.AloneSlowdownMax, r.AloneSlowdownMean, r.AloneViolations = quantile(slowdowns, 1), mean(slowdowns), 0
	for _, s := range slowdowns {
		if s > 1+1e-9 {
			r.AloneViolations++
		}
	}
}

// rhoWeighted returns the mean of rho, weighted by T_cluster.
func (m *Meter) rhoWeighted() float64 {
	sum, weights := 0.0, 0.0
	for i := range m.fates {
		sum += m.fates[i].Rho * m.fates[i].Alone
		weights += m.fates[i].Alone
	}
	return ratio(sum, weights)
}

// rhoBound returns an upper bound of rhoWeighted for any schedule. With n apps at a time, T_cluster * rho of an app is
// the square of its life over the integral of n over it, which is at most the integral of 1/n (Cauchy and Schwarz).
// These add up to the time with at least one app. With a T_cluster that is too large, every schedule looks fair.
func (m *Meter) rhoBound() float64 {
	weights := 0.0
	for i := range m.fates {
		weights += m.fates[i].Alone
	}
	return ratio(m.busySeconds, weights)
}

// static computes rho as in Shockwave's simulator (Zheng et al., NSDI 2023): against an equal share of the devices
// among all jobs of the trace, whether they are present at the same time or not. Each job can use one device.
func (r *Result) static(slowdowns []float64, devices int) {
	share := max(1, ratio(float64(len(slowdowns)), float64(devices)))
	r.SlowdownMax = quantile(slowdowns, 1)
	r.StaticRhoMax = r.SlowdownMax / share
	at, _ := slices.BinarySearch(slowdowns, share*(1+1e-9))
	r.StaticViolations = len(slowdowns) - at
}

// Timeless returns the result without the values that differ between equal runs: times and memory.
func (r Result) Timeless() Result {
	r.DecisionMillisMax = 0
	r.DecisionMillisP50, r.DecisionMillisP95, r.Wall, r.EventsPerSecond, r.PeakMemory = 0, 0, 0, 0, 0
	return r
}

// placement returns the score over ended and running leases.
func (m *Meter) placement() float64 {
	placed := m.placed
	for i := range m.jobs {
		for _, h := range m.jobs[i].held {
			placed += (m.now - h.since) * float64(h.Devices) / h.Slowdown
		}
	}
	return ratio(placed, m.heldSeconds)
}

// tenantLoss counts the intervals that have ended and those that have begun.
func (m *Meter) tenantLoss() float64 {
	m.eachTenant(func(t *tenant) { t.advance(m) })
	lossy, all := m.lossy, m.intervals
	for _, t := range m.order {
		if t.fair > 0 {
			all++
			if t.allocated < t.fair*(1-1e-9) {
				lossy++
			}
		}
	}
	return ratio(float64(lossy), float64(all))
}

func sorted(values []float64) []float64 { return slices.Sorted(slices.Values(values)) }

// quantile returns the value at index floor(q n) of sorted values, or 0 for none.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	// A product such as 0.95 * 20 may be slightly below the intended integer.
	at := int(math.Floor(q*float64(len(values)) + 1e-9))
	return values[min(at, len(values)-1)]
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return ratio(sum, float64(len(values)))
}

// deviation returns the standard deviation of a sample.
func deviation(values []float64) float64 {
	about, squares := mean(values), 0.0
	for _, v := range values {
		squares += (v - about) * (v - about)
	}
	return math.Sqrt(ratio(squares, float64(len(values)-1)))
}

// jain returns (sum x)^2 / (n sum x^2).
func jain(values []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range values {
		sum += v
		squares += v * v
	}
	return ratio(sum*sum, float64(len(values))*squares)
}

// ratio returns a/b, or 0 for b = 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
