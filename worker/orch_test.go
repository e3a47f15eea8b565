package worker

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// orch is a small orchestrator. It handles uplinks as the protocol says, records what happened, and sends the orders
// that a test sets.
type orch struct {
	send func(*outbidv1.Orders)

	mu          sync.Mutex
	boot        string
	boots       int
	seen        uint64
	generation  uint64
	term        uint64
	lease, beat time.Duration
	mute        bool // sends nothing
	deaf        bool // ignores everything
	tenants     bool
	refused     string
	assignments []*outbidv1.Assignment
	averages    []*outbidv1.Consolidation
	taken       map[uint64]uint64
	forks       []*outbidv1.ForkStatus
	info        *outbidv1.NodeInfo
	// health has the result of the worker's checks in each uplink; introduced is how many there were when it
	// introduced itself.
	health     []*outbidv1.NodeHealth
	introduced int
	leaving    bool
	uplinks    int
	messages   []*outbidv1.UplinkMessage
	repeated   int
	changed    chan struct{}
}

func newOrch(send func(*outbidv1.Orders)) *orch {
	return &orch{send: send, lease: 10 * time.Second, term: 1, taken: map[uint64]uint64{}, changed: make(chan struct{})}
}

func (o *orch) uplink(up *outbidv1.Uplink) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.deaf {
		return
	}
	o.uplinks++
	o.health = append(o.health, up.GetHealth())
	if up.GetInfo() != nil {
		o.introduced = o.uplinks
	}
	if up.GetBoot() != o.boot {
		if up.GetInfo() == nil {
			o.generation++
			o.send(&outbidv1.Orders{Node: up.GetNode(), Boot: up.GetBoot(), Generation: o.generation, Term: o.term, Hello: true})
			return
		}
		o.boot, o.seen, o.info = up.GetBoot(), 0, up.GetInfo()
		o.boots++
	}
	o.leaving = up.GetLeaving()
	if !up.GetForksLeftOut() {
		o.forks, o.taken = up.GetForks(), map[uint64]uint64{}
		for _, f := range up.GetForks() {
			o.taken[f.GetFork().GetLeaseId()] = f.GetVersion()
		}
	}
	for i, m := range up.GetMessages() {
		switch seq := up.GetFirstSeq() + uint64(i); {
		case seq <= o.seen:
			o.repeated++
		case seq == o.seen+1:
			o.seen = seq
			o.messages = append(o.messages, m)
		}
	}
	o.order()
	close(o.changed)
	o.changed = make(chan struct{})
}

// order sends orders. The caller holds the lock.
func (o *orch) order() {
	if o.mute || o.boot == "" {
		return
	}
	o.generation++
	orders := &outbidv1.Orders{
		Node: "n1", Boot: o.boot, Generation: o.generation, Term: o.term, AckedSeq: o.seen, Lease: durationpb.New(o.lease),
		Tenants: o.tenants, Consolidations: o.averages, Refused: o.refused, Beat: durationpb.New(o.beat),
	}
	for _, a := range o.assignments {
		short := &outbidv1.Assignment{
			Fork: a.GetFork(), Version: a.GetVersion(), Verdict: a.GetVerdict(), UntilStep: a.GetUntilStep(), Reason: a.GetReason(),
			ReportRate: a.GetReportRate(),
		}
		if o.taken[a.GetFork().GetLeaseId()] == 0 {
			short.Body = a.GetBody()
		}
		orders.Assignments = append(orders.Assignments, short)
	}
	o.send(orders)
}

// with changes something under the lock and sends orders.
func (o *orch) with(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
	o.order()
}

// assign adds an assignment.
func (o *orch) assign(a *outbidv1.Assignment) {
	o.with(func() { o.assignments = append(o.assignments, a) })
}

// change directs a fork.
func (o *orch) change(leaseID uint64, verdict outbidv1.Verdict, until int64) {
	o.with(func() {
		for _, a := range o.assignments {
			if a.GetFork().GetLeaseId() == leaseID {
				a.Version++
				a.Verdict, a.UntilStep = verdict, until
			}
		}
	})
}

// drop removes a fork from the orders.
func (o *orch) drop(leaseID uint64) {
	o.with(func() {
		o.assignments = slices.DeleteFunc(o.assignments, func(a *outbidv1.Assignment) bool { return a.GetFork().GetLeaseId() == leaseID })
	})
}

// text returns a summary of a fork's messages.
func (o *orch) text(leaseID uint64) string {
	var b strings.Builder
	for _, m := range o.messages {
		if m.GetFork().GetLeaseId() == leaseID {
			fmt.Fprintf(&b, "%s\n", describe(m))
		}
	}
	return b.String()
}

func describe(m *outbidv1.UplinkMessage) string {
	switch k := m.GetKind().(type) {
	case *outbidv1.UplinkMessage_Began:
		return fmt.Sprintf("began %d", k.Began.GetFromStep())
	case *outbidv1.UplinkMessage_Report:
		return fmt.Sprintf("report %d", k.Report.GetStep())
	case *outbidv1.UplinkMessage_Reached:
		return fmt.Sprintf("reached %d", k.Reached.GetStep())
	case *outbidv1.UplinkMessage_Saved:
		return fmt.Sprintf("saved %d %s", k.Saved.GetStep(), k.Saved.GetKey())
	case *outbidv1.UplinkMessage_Shard:
		return fmt.Sprintf("shard %d %d of %d bytes", k.Shard.GetShard().GetRank(), k.Shard.GetStep(), k.Shard.GetShard().GetBytes())
	case *outbidv1.UplinkMessage_Ended:
		e := k.Ended
		text := fmt.Sprintf("ended %s at %d", strings.TrimPrefix(e.GetOutcome().String(), "FORK_OUTCOME_"), e.GetStep())
		if e.GetFailure() != 0 {
			text += " " + strings.TrimPrefix(e.GetFailure().String(), "FAILURE_KIND_")
		}
		if e.GetDetail() != "" {
			text += ": " + e.GetDetail()
		}
		return text
	case *outbidv1.UplinkMessage_Consolidated:
		c := k.Consolidated
		return fmt.Sprintf("averaged %d %s %t: %s", c.GetCheckpoint().GetStep(), c.GetCheckpoint().GetKey(), c.GetMismatch(), c.GetFailure())
	case *outbidv1.UplinkMessage_Note:
		return "note " + k.Note.GetText()
	}
	return "?"
}

// await waits until cond holds.
func (o *orch) await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		o.mu.Lock()
		ok, changed := cond(), o.changed
		o.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			o.mu.Lock()
			defer o.mu.Unlock()
			var all []string
			for _, m := range o.messages {
				if m.GetReport() == nil {
					all = append(all, fmt.Sprintf("%d: %s", m.GetFork().GetLeaseId(), describe(m)))
				}
			}
			t.Fatalf("never: %s; got %d messages:\n%s\nforks %v", what, len(o.messages), strings.Join(all, "\n"), o.forks)
		}
	}
}

// awaitText waits until the messages of a fork contain each of the texts.
func (o *orch) awaitText(t *testing.T, leaseID uint64, texts ...string) {
	t.Helper()
	for _, text := range texts {
		o.await(t, fmt.Sprintf("%q of fork %d", text, leaseID), func() bool { return strings.Contains(o.text(leaseID), text) })
	}
}

// heard returns the messages of a fork.
func (o *orch) heard(leaseID uint64) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text(leaseID)
}
