package policytest

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func kinds() []string { return []string{"v100", "p100", "k80"} }

// drawWorld draws a cluster on which some jobs run, some are ending and some wait.
func drawWorld(t *rapid.T) *world {
	w := &world{now: time.Unix(1_000_000, 0).UTC(), round: 1, appSeconds: 5000, trials: map[string]int32{}}
	for i := range rapid.IntRange(0, 5).Draw(t, "nodes") {
		w.nodes = append(w.nodes, drawNode(t, fmt.Sprintf("n%d", i)))
	}
	for range rapid.IntRange(0, 4).Draw(t, "apps") {
		w.drawApp(t)
	}
	free := cluster.NewCapacity(w.nodes)
	w.eachJob(func(j *policy.Job) {
		g, ok := free.Best(j.Demand)
		if !ok || rapid.Bool().Draw(t, "waits") {
			return
		}
		free.Take(g, j.Demand)
		j.Gangs, j.Granted, j.Leases, j.Queued = []cluster.Gang{g}, w.now.Add(-seconds(t, "runs for", 900)), 1, time.Time{}
		j.Ending = rapid.IntRange(0, 4).Draw(t, "ending") == 0
		if rapid.Bool().Draw(t, "trains") {
			j.Reported = w.now.Add(-seconds(t, "reported before", 60))
		}
		if rapid.Bool().Draw(t, "has a term") {
			j.TermEnd = w.now.Add(seconds(t, "term", 900) - 300*time.Second)
		}
	})
	for i := range w.nodes {
		w.nodes[i].Draining = rapid.IntRange(0, 6).Draw(t, "draining") == 0
	}
	return w
}

// drawTenants gives some tenants quotas, and removes them from others. A tenant may hold more than its new quota.
func (w *world) drawTenants(t *rapid.T) {
	w.tenants = []policy.Tenant{}
	for _, name := range []string{"x", "y"} {
		if rapid.Bool().Draw(t, "nobody added "+name) {
			continue
		}
		quota := cluster.Quota{Owner: name, All: rapid.IntRange(-1, 8).Draw(t, "quota"), Of: map[string]int{}}
		for _, kind := range kinds() {
			if rapid.Bool().Draw(t, "quota of "+kind) {
				quota.Of[kind] = rapid.IntRange(0, 4).Draw(t, kind)
			}
		}
		w.tenants = append(w.tenants, policy.Tenant{Name: name, Weight: rapid.SampledFrom([]float64{1, 2}).Draw(t, "tenant's weight"), Quota: quota})
	}
}

// drawBounded draws a world in which tenants have quotas.
func drawBounded(t *rapid.T) *world {
	w := drawWorld(t)
	w.drawTenants(t)
	return w
}

func seconds(t *rapid.T, what string, most int) time.Duration {
	return time.Duration(rapid.IntRange(0, most).Draw(t, what)) * time.Second
}

func drawNode(t *rapid.T, name string) cluster.Node {
	n := cluster.Node{
		Name: name, Trusted: rapid.IntRange(0, 3).Draw(t, "stranger") > 0, Rack: rapid.SampledFrom([]string{"", "r1", "r2"}).Draw(t, "rack"),
		CPUs: rapid.SampledFrom([]float64{0, 4, 16}).Draw(t, "cpus"), Memory: rapid.SampledFrom([]int64{0, 4, 16}).Draw(t, "memory"),
	}
	own := rapid.SampledFrom(kinds()).Draw(t, "kind")
	for d := range rapid.IntRange(0, 5).Draw(t, "devices") {
		kind := own
		if rapid.IntRange(0, 4).Draw(t, "odd") == 0 {
			kind = rapid.SampledFrom(kinds()).Draw(t, "odd kind")
		}
		n.Devices = append(n.Devices, cluster.Device{
			Index: d, Type: kind, Slot: d / 2, Speed: rapid.SampledFrom([]float64{1, 1, 1, 0.5}).Draw(t, "speed"),
		})
		if d > 0 && rapid.IntRange(0, 3).Draw(t, "linked") == 0 {
			n.Links = append(n.Links, cluster.Link{A: d - 1, B: d, Rank: 2})
		}
	}
	return n
}

// drawApp submits a sweep with its first trials.
func (w *world) drawApp(t *rapid.T) {
	w.made++
	total := rapid.Int64Range(0, 3000).Draw(t, "total steps")
	a := &policy.App{
		ID: fmt.Sprintf("app%c-%d", 'a'+rune(w.made%3), w.made), Tenant: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "tenant"),
		Weight: rapid.SampledFrom([]float64{1, 1, 0.5, 3}).Draw(t, "weight"), Submitted: w.now, Order: w.made,
		AppSecondsBefore: w.appSeconds, Demand: drawDemand(t), Speeds: drawSpeeds(t), TotalSteps: total,
		Tuner: rapid.SampledFrom([]string{"random", "asha", "successive_halving", "hyperband", "grid"}).Draw(t, "tuner"),
		Spec:  &outbidv1.SweepSpec{Name: "app", Tenant: "x"},
	}
	if len(w.apps) > 0 || rapid.Bool().Draw(t, "was there before") {
		a.Submitted = w.now.Add(-seconds(t, "submitted before", 1000))
		for _, other := range w.apps { // apps are in order of submission
			if a.Submitted.Before(other.Submitted) {
				a.Submitted = w.now
			}
		}
		a.AppSecondsBefore = max(0, w.appSeconds-float64(1+len(w.apps))*w.now.Sub(a.Submitted).Seconds())
	}
	trials := rapid.IntRange(1, 12).Draw(t, "trials")
	outlook := tuner.Outlook{Trials: trials, Steps: int64(trials) * total}
	if rapid.Bool().Draw(t, "rungs") {
		outlook.Rungs = []tuner.Rung{
			{UntilStep: total / 4, Trials: trials, Steps: int64(trials) * (total / 4)},
			{UntilStep: total, Trials: (trials + 1) / 2, Steps: int64((trials+1)/2) * (total - total/4)},
		}
	}
	a.Outlook = func() tuner.Outlook { return outlook }
	a.Paused = rapid.IntRange(0, 6).Draw(t, "paused") == 0
	w.apps = append(w.apps, a)
	for range rapid.IntRange(1, 6).Draw(t, "jobs") {
		w.addJob(t, a)
	}
}

// addJob adds a trial to a sweep.
func (w *world) addJob(t *rapid.T, a *policy.App) {
	number := w.trials[a.ID] // numbers of ended trials are not reused
	w.trials[a.ID]++
	j := &policy.Job{
		App: a, Trial: number, Demand: a.Demand, Speeds: a.Speeds, Weight: 1, TotalSteps: a.TotalSteps, UntilStep: a.TotalSteps,
		Queued: w.now.Add(-seconds(t, "waited", 300)), Minimise: rapid.Bool().Draw(t, "minimise"),
	}
	if rapid.IntRange(0, 3).Draw(t, "own demand") == 0 {
		j.Demand, j.Speeds = drawDemand(t), drawSpeeds(t)
	}
	if rapid.Bool().Draw(t, "in part") && j.TotalSteps > 10 {
		j.UntilStep = j.TotalSteps / 2
	}
	if rapid.Bool().Draw(t, "trained before") && j.UntilStep > 1 {
		j.Step = rapid.Int64Range(0, j.UntilStep-1).Draw(t, "step")
		j.DeviceSeconds, j.Leases = float64(rapid.IntRange(1, 10_000).Draw(t, "attained")), 1
		for i := range rapid.IntRange(0, 5).Draw(t, "points") {
			value := rapid.Float64Range(-2, 10).Draw(t, "value")
			j.Curve = append(j.Curve, policy.Point{Step: int64(i) * j.Step / 5, Value: value})
		}
		a.DeviceSeconds += j.DeviceSeconds
	}
	j.Created = j.Queued
	a.Jobs = append(a.Jobs, j)
}

func drawDemand(t *rapid.T) cluster.Demand {
	least := rapid.IntRange(1, 4).Draw(t, "min")
	return cluster.Demand{
		Min: least, Max: least + rapid.IntRange(0, 3).Draw(t, "more"),
		Types:      rapid.SampledFrom([][]string{nil, nil, nil, {"v100"}, {"k80", "p100"}}).Draw(t, "types"),
		Exclude:    rapid.SampledFrom([][]string{nil, nil, nil, {"k80"}}).Draw(t, "exclude"),
		CPUs:       rapid.SampledFrom([]float64{0, 0, 1, 3}).Draw(t, "cpus"),
		Memory:     rapid.SampledFrom([]int64{0, 0, 2}).Draw(t, "memory"),
		NeedsTrust: rapid.IntRange(0, 3).Draw(t, "needs trust") == 0,
		MultiNode:  rapid.Bool().Draw(t, "spread"), Mixed: rapid.IntRange(0, 3).Draw(t, "mixed") == 0,
	}
}

func drawSpeeds(t *rapid.T) *cluster.Speeds {
	if rapid.Bool().Draw(t, "unknown speeds") {
		return nil
	}
	s := &cluster.Speeds{}
	for _, kind := range kinds() {
		if rapid.IntRange(0, 3).Draw(t, "measured") > 0 {
			s.Measured = append(s.Measured, cluster.Speed{
				Type: kind, Devices: rapid.IntRange(1, 4).Draw(t, "on devices"), Locality: cluster.SameMachine,
				Rate: rapid.SampledFrom([]float64{0, 0.5, 1, 4, 10}).Draw(t, "rate"),
			})
		}
	}
	if rapid.Bool().Draw(t, "network bound") {
		s.S[cluster.SameRack], s.S[cluster.AcrossRacks] = 2, 3
	}
	return s
}
