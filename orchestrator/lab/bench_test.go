package lab_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

// BenchmarkDecision measures one decision on a full cluster of 240 devices on which a job has just ended and jobs of 15
// tenants wait, the common case of a busy cluster.
func BenchmarkDecision(b *testing.B) {
	for _, name := range lab.Policies().Names() {
		for _, count := range []int{32, 2048} {
			b.Run(fmt.Sprintf("%s/%d", name, count), func(b *testing.B) {
				s := crowd(count)
				p, err := lab.Policies().New(name, nil)
				if err != nil {
					b.Fatal(err)
				}
				for range 3 {
					s.Decide(b, p)
					s.Settle()
				}
				decideOnEnds(b, s, p)
			})
		}
	}
}

// decideOnEnds frees the devices of one running job after another, each for one decision.
func decideOnEnds(b *testing.B, s *stagetest.Stage, p policy.Policy) {
	v := s.View()
	var running []*policy.Job
	for _, j := range v.Jobs() {
		if j.Running() {
			running = append(running, j)
		}
	}
	if len(running) == 0 {
		b.Skip("nothing runs")
	}
	at := 0
	for b.Loop() {
		j := running[at%len(running)]
		at++
		gang := j.Gang()
		v.Free.Commit()
		v.Free.Release(gang, j.Demand)
		j.Gangs = nil
		v.Now = v.Now.Add(time.Second)
		p.Decide(v)
		j.Gangs = []cluster.Gang{gang}
		v.Free.Take(gang, j.Demand)
	}
}
