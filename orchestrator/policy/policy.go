// Package policy decides which trial gets which device: a Policy turns a view of the cluster and its sweeps into a plan
// of grants. A Policy is pure: the view contains the time, and every decision in the plan has a reason. The same
// policies run live, in the simulator and in replay.
package policy

import (
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A Policy decides at least whenever a change could affect its plan, and at Plan.Next.
type Policy interface {
	// Name returns the policy's name in the registry.
	Name() string
	// Decide returns the changes to make. It must leave the view unchanged and must not retain it. To try something on
	// the view's Free, use a Statement and discard it; a Planner does so itself.
	Decide(*View) Plan
	// Snapshot returns the policy's state, including the random state, or nil if it has none.
	Snapshot() ([]byte, error)
	// Restore continues from a snapshot.
	Restore([]byte) error
}

// Preemptive is implemented by policies that may preempt running trials. Their view has as many waiting jobs of each
// sweep as the cluster could run, not just as many as could start now.
type Preemptive interface {
	Preempts() bool
}

// Forking is implemented by policies that may train a trial on several forks.
type Forking interface {
	ForksJobs() bool
}

// ForksJobs reports whether a policy may train a trial on several forks.
func ForksJobs(p Policy) bool {
	forking, can := p.(Forking)
	return can && forking.ForksJobs()
}

// Growing is implemented by policies that may stop a trial before its term ends to give it more devices.
type Growing interface {
	GrowsJobs() bool
}

// GrowsJobs reports whether a policy may stop a trial before its term ends to give it more devices.
func GrowsJobs(p Policy) bool {
	growing, can := p.(Growing)
	return can && growing.GrowsJobs()
}

// Plan is a set of changes.
type Plan struct {
	Grants  []Grant
	Renews  []Renew
	Revokes []Revoke
	// Reason explains the round.
	Reason string
	// Next is when to ask the policy again even if nothing changes, or zero if it needs no such call.
	Next time.Time
	// Auction is the record of an auction, kept in the ledger for `outbid auction`, or nil without one.
	Auction *outbidv1.Auction
	// Admissions holds the decisions of a policy with admission control that differ from earlier ones; a rejected sweep
	// is stopped. Prices holds the expected prices of devices if they have changed.
	Admissions []*outbidv1.Admission
	Prices     *outbidv1.Prices
}

// Grant gives free devices to a job that holds none.
type Grant struct {
	Job    *Job
	Gang   cluster.Gang
	Reason string
	// Fork marks a gang for a further fork of a job that already has a gang: each is trained by its own process. Only
	// waiting jobs get other grants.
	Fork bool
	// Steps is this fork's share of a fork slot, after which it ends, or 0 for a lease outside a fork slot. All grants
	// of a fork slot are in one plan: the first is for the waiting job, the others have Fork set. TermEnd ends the
	// slot: a fork that has not finished its share by then saves and ends.
	Steps int64
	// Rate is the steps per second from which this share was computed, or 0 if it was not computed from rates.
	Rate float64
	// TermEnd is when the lease's term ends and the policy decides about these devices again, or zero for no term. The
	// job runs until it is revoked.
	TermEnd time.Time
}

// Renew extends a running job's leases on all its gangs by another term without stopping it.
type Renew struct {
	Job     *Job
	TermEnd time.Time
	Reason  string
}

// Revoke takes a job off all its gangs after it has saved. The devices are free once the job has ended, which the
// policy sees in a later view.
type Revoke struct {
	Job    *Job
	Reason string
}

// Bidding is a policy in which sweeps bid. Sweeps may choose a bidder outside the binary.
type Bidding interface {
	Policy
	// UseBidder sets the bidder for these sweeps; with nil they do not bid. It must answer at once and is asked about
	// each sweep once in a round. The answers of a round are recorded in its Auction, one Bidder for each sweep asked,
	// so that the round can be decided again from the record. A round may be started to find out what it asks, and then
	// decided from the snapshot before it.
	UseBidder(bidder.Bidder)
}
