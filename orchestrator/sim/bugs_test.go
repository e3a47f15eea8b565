package sim_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// buggy is a transport that simulates a bug in workers or in the transport.
type buggy struct {
	sim.Transport
	up   func(*outbidv1.Uplink)
	down func(*outbidv1.Orders)
	// twice is a node that also receives other nodes' orders.
	twice string
}

// Up implements sim.Transport.
func (b *buggy) Up(u *outbidv1.Uplink, arrive func(*outbidv1.Uplink)) {
	b.Transport.Up(u, func(u *outbidv1.Uplink) {
		if b.up != nil {
			u = proto.CloneOf(u)
			b.up(u)
		}
		arrive(u)
	})
}

// Down implements sim.Transport.
func (b *buggy) Down(o *outbidv1.Orders, arrive func(*outbidv1.Orders)) {
	if b.down != nil {
		o = proto.CloneOf(o)
		b.down(o)
	}
	b.Transport.Down(o, arrive)
	if b.twice != "" && o.GetNode() != b.twice && len(o.GetAssignments()) > 0 {
		other := proto.CloneOf(o)
		other.Node, other.Generation = b.twice, 1<<40
		b.Transport.Down(other, arrive)
	}
}

// Each kind of bug in a worker or the transport violates an invariant, and the error names it.
func TestInjectedBugsAreCaught(t *testing.T) {
	t.Parallel()
	networks := map[string]func() sim.Transport{
		"perfect": sim.Perfect,
		"network": func() sim.Transport { return sim.Network(sim.Faults{}) },
	}
	cuts := map[string]func() sim.Transport{
		"cut off": func() sim.Transport { return sim.Network(sim.Faults{CutOff: time.Minute, CutFor: time.Minute}) },
	}
	for _, c := range []struct {
		bug  string
		over map[string]func() sim.Transport
		make func() buggy
		want string
	}{
		{"none", networks, func() buggy { return buggy{} }, ""},
		{"none with cuts", cuts, func() buggy { return buggy{} }, ""},
		{"a worker reports what a process of an earlier lease reported", networks, staleReports, "whose process made"},
		{"a report is skipped", networks, skippedReports, "whose process made"},
		{"a worker reports that its trial is at its target, and it is not", networks, reachesAtOnce, "completed after"},
		{"a worker goes on from a later step than was saved", networks, startsLater, "its leases trained"},
		{"a worker says that its process has ended, and it has not", networks, endsTooEarly, "ended while its process uses device"},
		{"a lease is given to a second worker too", networks, func() buggy { return buggy{twice: "gpu-2"} }, "a process of lease 1 starts on device 0 of gpu-2"},
		{"the order to stop is lost for good", networks, neverStops, "has not ended|no more events"},
		{"a worker goes on when its lease is over", cuts, goesOn, "ended while its process uses device"},
	} {
		for name, transport := range c.over {
			t.Run(c.bug+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := c.make()
				b.Transport = transport()
				mishaps := sim.Mishaps{}
				if strings.Contains(c.bug, "earlier lease") {
					mishaps.JobFails = 100 * time.Second
				}
				_, err := sim.Run(context.Background(), sim.Setup{
					Nodes: nodesOf(t, "gpu:2/1"), Apps: []sim.App{exploration("halving", 9)}, Control: settings(), Policy: policyOf(t, "fifo"),
					Transport: &b, Seed: 4, Mishaps: mishaps,
				})
				caught := c.want == "" && err == nil
				for want := range strings.SplitSeq(c.want, "|") {
					caught = caught || c.want != "" && err != nil && strings.Contains(err.Error(), want)
				}
				if !caught {
					t.Errorf("it says %v, want %q", err, c.want)
				}
			})
		}
	}
}

// staleReports replaces a trial's reports under a later lease by those under its first.
func staleReports() buggy {
	first := map[int32]*outbidv1.UplinkMessage{}
	return buggy{up: func(u *outbidv1.Uplink) {
		for _, m := range u.GetMessages() {
			r, trial := m.GetReport(), m.GetFork().GetTrial()
			before := first[trial]
			switch {
			case r == nil:
			case before == nil:
				first[trial] = proto.CloneOf(m)
			case before.GetFork().GetLeaseId() != m.GetFork().GetLeaseId():
				r.Step = before.GetReport().GetStep()
			}
		}
	}}
}

func skippedReports() buggy {
	return buggy{up: func(u *outbidv1.Uplink) {
		for _, m := range u.GetMessages() {
			if r := m.GetReport(); r.GetSeq() > 1 {
				r.Seq++
			}
		}
	}}
}

func reachesAtOnce() buggy {
	return buggy{up: func(u *outbidv1.Uplink) {
		for _, m := range u.GetMessages() {
			if r := m.GetReport(); r.GetStep() == 4 {
				m.Kind = &outbidv1.UplinkMessage_Reached{Reached: &outbidv1.ForkReached{Step: 9}}
			}
		}
	}}
}

func startsLater() buggy {
	return buggy{down: func(o *outbidv1.Orders) {
		for _, a := range o.GetAssignments() {
			if c := a.GetBody().GetStart(); c != nil {
				c.Step, c.Key = c.GetStep()+1, ""
			}
		}
	}}
}

func endsTooEarly() buggy {
	return buggy{up: func(u *outbidv1.Uplink) {
		for _, m := range u.GetMessages() {
			if m.GetReport() != nil {
				m.Kind = &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED}}
			}
		}
	}}
}

func neverStops() buggy {
	return buggy{down: func(o *outbidv1.Orders) {
		for _, a := range o.GetAssignments() {
			if a.GetVerdict() != outbidv1.Verdict_VERDICT_TRAIN {
				a.Verdict, a.Version = outbidv1.Verdict_VERDICT_TRAIN, 0
			}
		}
	}}
}

func goesOn() buggy {
	return buggy{down: func(o *outbidv1.Orders) {
		if o.Lease != nil {
			o.Lease.Seconds = 3600
		}
	}}
}
