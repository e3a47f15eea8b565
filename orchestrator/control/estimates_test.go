package control_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// guessing grants each waiting job a device, the one with the highest known rate, and records the rates that it sees.
type guessing struct{ forking }

func (p guessing) ForksJobs() bool { return true }

func (p guessing) Decide(v *policy.View) (plan policy.Plan) {
	for _, a := range v.Apps {
		for _, j := range a.Jobs {
			text := fmt.Sprintf("%s/%d", a.ID, j.Trial)
			best, most := cluster.Gang(nil), 0.0
			for n, node := range v.Nodes {
				g := cluster.Gang{{Node: n, Devices: []int{0}}}
				rate := v.Rate(j, g)
				text += fmt.Sprintf(" %s %.1f", node.Devices[0].Type, rate)
				if v.Free.IsFree(g) && rate >= most {
					best, most = g, rate
				}
			}
			*p.seen = append(*p.seen, text)
			if j.Waiting() && best != nil && a.ID != "s-1" {
				plan.Grants = append(plan.Grants, policy.Grant{Job: j, Gang: best, Reason: "the fastest"})
				return plan
			}
		}
	}
	return plan
}

// Before any measurement, a job that may be forked has rates in proportion to the estimated speeds of the device
// types. After that, they are in proportion to the measurements of any job of its sweep.
func TestRatesOfJobsThatMayBeForked(t *testing.T) {
	t.Parallel()
	c := newClusterOf(t, func(seen *[]string) policy.Policy { return guessing{forking{seen}} }, 100)
	for node, kind := range map[string]string{"h": "h100", "v": "v100"} {
		c.seq[node] = 1
		c.step(control.Uplink{Message: &outbidv1.Uplink{Node: node, Boot: node + "1", Info: &outbidv1.NodeInfo{
			Devices: []*outbidv1.Device{{Type: kind}},
		}}})
	}
	spec := sim.Sweep("f", "min", 2, sim.Tuner("random", map[string]int64{"max_steps": 100}))
	spec.Resources = &outbidv1.Resources{Forks: "auto"}
	c.step(control.Submit{Spec: spec, Done: func(_ string, err error) {
		if err != nil {
			t.Fatal(err)
		}
	}})
	expect := func(job, want string) {
		t.Helper()
		for i := len(c.seen) - 1; i >= 0; i-- {
			if rest, ok := strings.CutPrefix(c.seen[i], job); ok {
				if rest != want {
					t.Errorf("%s is thought to run at%s, want%s", job, rest, want)
				}
				return
			}
		}
		t.Errorf("nothing was seen of %s: %q", job, c.seen)
	}
	expect("s-1/0", " gpu 1.0 gpu 1.0 h100 1.0 v100 1.0") // it is never forked: all types count as equal
	expect("f-1/0", " gpu 1.0 gpu 1.0 h100 1.0 v100 0.2")
	f := c.forks["h"][0]
	r := report(f, 1, 80)
	r.GetReport().TrainSeconds = 1
	c.say("h", begins(f, 0), r)
	c.step(control.Tick{})
	c.say("h", endsFork(f, outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, 80)) // asks the policy
	expect("f-1/0", " gpu 80.0 gpu 80.0 h100 80.0 v100 18.3")
	expect("f-1/1", " gpu 80.0 gpu 80.0 h100 80.0 v100 18.3")
}
