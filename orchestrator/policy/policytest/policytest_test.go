package policytest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/policytest"
)

// verdict records the failure of Check, and stops it there.
type verdict struct{ text string }

func (*verdict) Helper() {}

func (v *verdict) Fatalf(format string, args ...any) {
	v.text = fmt.Sprintf(format, args...)
	panic(v)
}

func check(v *policy.View, plan policy.Plan) (text string) {
	var said verdict
	defer func() {
		if r := recover(); r != nil && r != any(&said) {
			panic(r)
		}
		text = said.text
	}()
	policytest.Check(&said, v, plan)
	return ""
}

// Each plan breaks one rule.
func TestCheckFindsBrokenRules(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0).UTC()
	gang := func(node int, devices ...int) cluster.Gang { return cluster.Gang{{Node: node, Devices: devices}} }
	for name, tc := range map[string]struct {
		// plan for job 0, which runs on device 0 of node 0, and job 1, which waits for two devices.
		plan   func(runs, waits *policy.Job) policy.Plan
		demand cluster.Demand
		want   string
	}{
		"nothing wrong": {plan: func(runs, waits *policy.Job) policy.Plan {
			return policy.Plan{
				Grants: []policy.Grant{{Job: waits, Gang: gang(0, 1, 2), Reason: "x"}}, Reason: "y", Next: now.Add(1),
				Revokes: []policy.Revoke{{Job: runs, Reason: "x"}},
			}
		}},
		"a held device": {want: "not free", plan: func(_, waits *policy.Job) policy.Plan {
			return policy.Plan{Grants: []policy.Grant{{Job: waits, Gang: gang(0, 0, 1), Reason: "x"}}}
		}},
		"half a gang": {want: "1 devices, it wants 2 to 2", plan: func(_, waits *policy.Job) policy.Plan {
			return policy.Plan{Grants: []policy.Grant{{Job: waits, Gang: gang(0, 1), Reason: "x"}}}
		}},
		"two nodes": {want: "one node", plan: func(_, waits *policy.Job) policy.Plan {
			return policy.Plan{Grants: []policy.Grant{{Job: waits, Gang: append(gang(0, 1), gang(1, 0)...), Reason: "x"}}}
		}},
		"two types": {want: "several types", plan: func(_, waits *policy.Job) policy.Plan {
			return policy.Plan{Grants: []policy.Grant{{Job: waits, Gang: gang(0, 2, 3), Reason: "x"}}}
		}},
		"a type that is excluded": {
			want: "does not accept", demand: cluster.Demand{Exclude: []string{"a"}},
			plan: func(_, waits *policy.Job) policy.Plan {
				return policy.Plan{Grants: []policy.Grant{{Job: waits, Gang: gang(0, 1, 2), Reason: "x"}}}
			},
		},
		"more memory than there is": {
			want: "short of", demand: cluster.Demand{Memory: 5}, plan: func(_, waits *policy.Job) policy.Plan {
				return policy.Plan{Grants: []policy.Grant{{Job: waits, Gang: gang(0, 1, 2), Reason: "x"}}}
			},
		},
		"a draining node": {want: "draining true", plan: func(_, waits *policy.Job) policy.Plan {
			return policy.Plan{Grants: []policy.Grant{{Job: waits, Gang: gang(1, 0, 1), Reason: "x"}}}
		}},
		"no reason": {want: "without a reason", plan: func(_, waits *policy.Job) policy.Plan {
			return policy.Plan{Grants: []policy.Grant{{Job: waits, Gang: gang(0, 1, 2)}}}
		}},
		"granted twice": {want: "two decisions", plan: func(_, waits *policy.Job) policy.Plan {
			g := policy.Grant{Job: waits, Gang: gang(0, 1, 2), Reason: "x"}
			return policy.Plan{Grants: []policy.Grant{g, g}}
		}},
		"granted to one that runs": {want: "but holds", plan: func(runs, _ *policy.Job) policy.Plan {
			return policy.Plan{Grants: []policy.Grant{{Job: runs, Gang: gang(0, 1, 2), Reason: "x"}}}
		}},
		"revoked though it waits": {want: "bad revoke", plan: func(_, waits *policy.Job) policy.Plan {
			return policy.Plan{Revokes: []policy.Revoke{{Job: waits, Reason: "x"}}}
		}},
		"renewed until now": {want: "bad renewal", plan: func(runs, _ *policy.Job) policy.Plan {
			return policy.Plan{Renews: []policy.Renew{{Job: runs, Reason: "x", TermEnd: now}}}
		}},
		"a job of another view": {want: "not in the view", plan: func(runs, _ *policy.Job) policy.Plan {
			other := *runs
			return policy.Plan{Revokes: []policy.Revoke{{Job: &other, Reason: "x"}}}
		}},
		"asked again at once": {want: "next round", plan: func(_, _ *policy.Job) policy.Plan { return policy.Plan{Next: now} }},
	} {
		devices := []cluster.Device{{Type: "a"}, {Type: "a"}, {Type: "a"}, {Type: "b"}}
		nodes := []cluster.Node{{Name: "m", Devices: devices, Memory: 4}, {Name: "n", Devices: devices, Draining: true}}
		app := &policy.App{ID: "app"}
		tc.demand.Min, tc.demand.Max = 2, 2
		runs := &policy.Job{App: app, Demand: cluster.Demand{Min: 1, Max: 2}, Gangs: []cluster.Gang{gang(0, 0)}}
		waits := &policy.Job{App: app, Trial: 1, Demand: tc.demand}
		app.Jobs = []*policy.Job{runs, waits}
		v := &policy.View{Now: now, Nodes: nodes, Apps: []*policy.App{app}, Free: cluster.NewCapacity(nodes)}
		v.Free.Take(runs.Gang(), runs.Demand)
		if got := check(v, tc.plan(runs, waits)); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
