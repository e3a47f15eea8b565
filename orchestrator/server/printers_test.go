package server

import (
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestANodePrintsForTheTrialsThatItRuns(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	fork := func(trial int32, lease uint64) *outbidv1.ForkRef {
		return &outbidv1.ForkRef{Sweep: "s-1", Trial: trial, LeaseId: lease}
	}
	order := func(node string, f *outbidv1.ForkRef, tenant string) *outbidv1.Orders {
		a := &outbidv1.Assignment{Fork: f}
		if tenant != "" {
			a.Body = &outbidv1.AssignmentBody{Tenant: tenant}
		}
		return &outbidv1.Orders{Node: node, Assignments: []*outbidv1.Assignment{a}}
	}
	p := newPrinters()
	p.recordOrders(order("n1", fork(1, 7), "vision"), noon)
	p.recordOrders(order("n1", fork(1, 7), ""), noon.Add(time.Minute)) // confirmed, so the body is left out
	p.recordRun("n2", fork(2, 5), "speech", noon)
	p.recordOrders(order("n2", fork(2, 5), ""), noon.Add(2*time.Minute))
	for what, tc := range map[string]struct {
		node, tenant string
		fork         *outbidv1.ForkRef
		after        time.Duration
		want         bool
	}{
		"its own trial":                      {"n1", "vision", fork(1, 7), time.Minute, true},
		"one that it had before a take-over": {"n2", "speech", fork(2, 5), time.Minute, true},
		"a late line":                        {"n1", "vision", fork(1, 7), time.Minute + lateOutput, true},
		"a line that comes too late":         {"n1", "vision", fork(1, 7), 2*time.Minute + lateOutput, false},
		"another node's trial":               {"n2", "vision", fork(1, 7), time.Minute, false},
		"another lease of its trial":         {"n1", "vision", fork(1, 8), time.Minute, false},
		"another trial":                      {"n1", "vision", fork(3, 7), time.Minute, false},
		"another tenant's stream":            {"n1", "speech", fork(1, 7), time.Minute, false},
		"nobody's stream":                    {"n1", "", fork(1, 7), time.Minute, false},
	} {
		c := &outbidv1.LogChunk{Node: tc.node, Tenant: tc.tenant, Fork: tc.fork}
		if got := p.may(c, noon.Add(tc.after)); got != tc.want {
			t.Errorf("%s: %t", what, got)
		}
	}
	p.recordOrders(&outbidv1.Orders{Node: "n3"}, noon.Add(3*lateOutput))
	if len(p.leases) != 0 {
		t.Errorf("%d leases of long ago are remembered", len(p.leases))
	}
}
