package baseline_test

import (
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
)

func at(minute int) time.Time {
	return time.Unix(1_700_000_000, 0).UTC().Add(time.Duration(minute) * time.Minute)
}

func view(devices int, jobs ...policy.Job) *policy.View {
	v := &policy.View{Now: at(60), Nodes: []cluster.Node{{Name: "n", Trusted: true}}, Jobs: jobs}
	for i := range devices {
		v.Nodes[0].Devices = append(v.Nodes[0].Devices, cluster.Device{Index: i, Type: "gpu", Speed: 1, Holder: cluster.Free})
	}
	for _, j := range jobs { // of one tenant, unless a test says otherwise
		for len(v.Apps) <= j.App {
			v.Apps = append(v.Apps, policy.App{ID: string(rune('a' + len(v.Apps)))})
		}
	}
	return v
}

func wants(app int, trial int32, devices, queued int) policy.Job {
	return policy.Job{App: app, Trial: trial, Demand: cluster.Demand{Min: devices, Max: devices}, Queued: at(queued)}
}

// granted lists the apps in the order of their grants.
func granted(v *policy.View, p policy.Plan) string {
	text := ""
	for _, g := range p.Grants {
		text += v.Apps[v.Jobs[g.Job].App].ID
	}
	return text
}

func TestFIFO(t *testing.T) {
	t.Parallel()
	v := view(3, wants(1, 0, 1, 5), wants(0, 1, 1, 9), wants(0, 0, 1, 7), wants(1, 1, 1, 6))
	p := baseline.FIFO{}.Decide(v)
	if got := granted(v, p); got != "aab" {
		t.Errorf("granted %q, want the first sweep's before the second's", got)
	}
	if first := v.Jobs[p.Grants[0].Job]; first.Trial != 0 {
		t.Errorf("first came trial %d, which waited less", first.Trial)
	}
	v = view(2, wants(0, 0, 3, 1), wants(1, 0, 1, 2))
	if got := granted(v, baseline.FIFO{}.Decide(v)); got != "b" {
		t.Errorf("granted %q: what fits is to go past what does not", got)
	}
}

// The example of the DRF paper (Ghodsi et al., NSDI 2011, section 4.1): 9 CPUs and 18 GB; tasks of A need 1 CPU and
// 4 GB, of B 3 CPUs and 1 GB. A runs 3 tasks, B 2.
func TestDRFsOwnExample(t *testing.T) {
	t.Parallel()
	var jobs []policy.Job
	for i := range int32(9) {
		a, b := wants(0, i, 1, 1), wants(1, i, 1, 1)
		a.Demand.CPUs, a.Demand.Memory = 1, 4<<30
		b.Demand.CPUs, b.Demand.Memory = 3, 1<<30
		jobs = append(jobs, a, b)
	}
	v := view(1000, jobs...) // devices are no bottleneck
	v.Nodes[0].CPUs, v.Nodes[0].Memory = 9, 18<<30
	tasks := map[byte]int{}
	for _, app := range []byte(granted(v, baseline.DRF{}.Decide(v))) {
		tasks[app]++
	}
	if tasks['a'] != 3 || tasks['b'] != 2 {
		t.Fatalf("A runs %d tasks and B %d, the paper says 3 and 2", tasks['a'], tasks['b'])
	}
}

// Three sweeps of one tenant share what one sweep of another gets alone.
func TestDRFSharesAmongTenantsFirst(t *testing.T) {
	t.Parallel()
	var jobs []policy.Job
	for app := range 4 {
		for i := range int32(6) {
			jobs = append(jobs, wants(app, i, 1, 1))
		}
	}
	v := view(6, jobs...)
	v.Apps[3].Tenant = "small"
	got := map[rune]int{}
	for _, app := range granted(v, baseline.DRF{}.Decide(v)) {
		got[app]++
	}
	if got['d'] != 3 || got['a'] != 1 || got['b'] != 1 || got['c'] != 1 {
		t.Errorf("granted %v", got)
	}
}

func TestDRFSharesDevices(t *testing.T) {
	t.Parallel()
	var jobs []policy.Job
	for i := range int32(4) {
		jobs = append(jobs, wants(0, i, 1, 1), wants(1, i, 1, 2))
	}
	v := view(4, jobs...)
	if got := granted(v, baseline.DRF{}.Decide(v)); got != "abab" {
		t.Errorf("granted %q", got)
	}
	jobs[0].Node, jobs[0].Devices = "n", []int{0}
	jobs[2].Node, jobs[2].Devices = "n", []int{1}
	v = view(4, jobs...)
	v.Nodes[0].Devices[0].Holder, v.Nodes[0].Devices[1].Holder = 0, 2
	if got := granted(v, baseline.DRF{}.Decide(v)); got != "bb" {
		t.Errorf("granted %q to one that holds nothing beside one that holds two", got)
	}
}
