package policytest

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// dumpView formats everything that a policy can see.
func dumpView(v *policy.View) string {
	var b strings.Builder
	fmt.Fprintf(&b, "round %d at %v, %g app-seconds\n", v.Round, v.Now, v.AppSeconds)
	for i, n := range v.Nodes {
		fmt.Fprintf(&b, "node %d: %+v, free %d:", i, n, v.Free.FreeAt(i, ""))
		for d := range n.Devices {
			fmt.Fprintf(&b, " %v", v.Free.IsFree(cluster.Gang{{Node: i, Devices: []int{d}}}))
		}
		// Demands that fit reveal the free cores and memory.
		for _, d := range probes() {
			fmt.Fprintf(&b, " %v", v.Free.Fits(cluster.Gang{{Node: i}}, d))
		}
		b.WriteString("\n")
	}
	for _, a := range v.Apps {
		app, speeds := *a, cluster.Speeds{}
		if a.Speeds != nil {
			speeds = *a.Speeds
		}
		app.Spec, app.Jobs, app.Outlook, app.Speeds = nil, nil, nil, nil
		fmt.Fprintf(&b, "app %+v, speeds %+v, %d jobs\n", app, speeds, len(a.Jobs))
		for _, j := range a.Jobs {
			job, speeds := *j, cluster.Speeds{}
			if j.Speeds != nil {
				speeds = *j.Speeds
			}
			job.App, job.Speeds = nil, nil
			fmt.Fprintf(&b, "  job %+v, speeds %+v, its app's: %v\n", job, speeds, j.App == a)
		}
	}
	return b.String()
}

// dumpPlan formats a plan, so that plans of two views can be compared.
func dumpPlan(p policy.Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s; next %v\n", p.Reason, p.Next)
	for _, g := range p.Grants {
		fmt.Fprintf(&b, "grant %v %v until %v: %s\n", g.Job.Name(), g.Gang, g.TermEnd, g.Reason)
	}
	for _, r := range p.Renews {
		fmt.Fprintf(&b, "renew %v until %v: %s\n", r.Job.Name(), r.TermEnd, r.Reason)
	}
	for _, r := range p.Revokes {
		fmt.Fprintf(&b, "revoke %v: %s\n", r.Job.Name(), r.Reason)
	}
	if p.Auction != nil {
		// The text form contains a random space, so remove all spaces.
		b.WriteString(strings.Join(strings.Fields(prototext.Format(p.Auction)), " "))
	}
	return b.String()
}
