package policy_test

import (
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

// forkedStage returns three nodes with one device each, and a trial whose forks run on two of them.
func forkedStage() (*stagetest.Stage, *policy.Job) {
	s := stagetest.New(append(stagetest.Nodes("fast", 1, 1, 2), stagetest.Nodes("slow", 1, 1, 1)...)...)
	a := s.App("a", "t")
	a.Speeds = &cluster.Speeds{Measured: []cluster.Speed{{Type: "fast", Devices: 1, Rate: 4}, {Type: "slow", Devices: 1, Rate: 1}}}
	j := s.Job(a, 1, 1, 1000)
	j.Gangs, j.Forked = []cluster.Gang{{{Node: 0, Devices: []int{0}}}, {{Node: 1, Devices: []int{0}}}}, true
	j.Granted, j.Reported = s.Now, s.Now
	return s, j
}

// Reclaiming or evicting a forked trial frees the devices of all its forks, and keeping it keeps all of them.
func TestAllForksOfAJobAreReclaimed(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*policy.Planner, *policy.Job){
		"reclaimed": func(p *policy.Planner, j *policy.Job) { p.Reclaim(j) },
		"evicted":   func(p *policy.Planner, j *policy.Job) { p.Evict(j, "the slot is over") },
	} {
		s, j := forkedStage()
		v := s.View()
		p := policy.Extend(v)
		before := p.Free().FreeDevices()
		do(p, j)
		if got := p.Free().FreeDevices() - before; got != 2 || !p.Pending(0, 0) || !p.Pending(1, 0) {
			t.Errorf("%s: the plan has %d free devices", name, got)
		}
		if plan := p.Plan("", "others want them"); len(plan.Revokes) != 1 || v.Free.FreeDevices() != before {
			t.Errorf("%s: it revokes %v", name, plan.Revokes)
		}
	}
	s, j := forkedStage()
	p := policy.Extend(s.View())
	before := p.Free().FreeDevices()
	p.Reclaim(j)
	if !p.Renew(j, "its round goes on") || p.Free().FreeDevices() != before {
		t.Errorf("it is not renewed, or %d devices are free", p.Free().FreeDevices())
	}
}

// The progress and the device time of a trial are sums over its forks.
func TestForksAddUp(t *testing.T) {
	t.Parallel()
	s, j := forkedStage()
	s.Now = s.Now.Add(10 * time.Second)
	v := s.View()
	if step, held := v.StepAt(j), v.Attained(j); step != 50 || held != 20 {
		t.Errorf("after ten seconds it is at step %v, and had %v device-seconds", step, held)
	}
	j.Forked = false // only the first fork's rate counts
	if step := v.StepAt(j); step != 40 {
		t.Errorf("it is at step %v", step)
	}
}
