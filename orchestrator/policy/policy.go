// Package policy decides who gets which device: it turns a view of the cluster and its sweeps into a plan of grants.
// A Policy is pure: it sees a view with the time in it, and returns a plan in which every decision carries its reason.
// The same policies run live, in the simulator and in replay.
package policy

import (
	"time"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A Policy is asked whenever something changed that could change its answer, and at the latest at Plan.Next.
type Policy interface {
	// Name is the policy's name in the registry.
	Name() string
	// Decide returns what should change. It leaves the view as it found it, and keeps nothing of it. What it tries out on
	// the view's Free, it does in a Statement that it discards; a Planner does so by itself.
	Decide(*View) Plan
	// Snapshot returns the policy's state, random state included; nil if it has none.
	Snapshot() ([]byte, error)
	// Restore goes on from a snapshot.
	Restore([]byte) error
}

// Preemptive is what a Policy has beside that takes devices away from who holds them: the view then shows as many waiting
// jobs of each app as the cluster could run, not just as many as are free to start.
type Preemptive interface {
	Preempts() bool
}

// Forking is what a Policy has beside that has several forks train a job.
type Forking interface {
	ForksJobs() bool
}

// ForksJobs says whether a policy has several forks train a job.
func ForksJobs(p Policy) bool {
	forking, can := p.(Forking)
	return can && forking.ForksJobs()
}

// Growing is what a Policy has beside that stops running jobs before their terms end, for more devices.
type Growing interface {
	GrowsJobs() bool
}

// GrowsJobs says whether a policy stops running jobs before their terms end, for more devices.
func GrowsJobs(p Policy) bool {
	growing, can := p.(Growing)
	return can && growing.GrowsJobs()
}

// Plan is what should change.
type Plan struct {
	Grants  []Grant
	Renews  []Renew
	Revokes []Revoke
	// Reason explains the round.
	Reason string
	// Next is when the policy wants to be asked again although nothing happened; zero for never.
	Next time.Time
	// Auction is the record of an auction, kept in the ledger for `outbid auction`; nil without one.
	Auction *outbidv1.Auction
	// Admissions are what a policy with admission says to sweeps, where that is other than before; one that is rejected is
	// stopped. Prices are what devices will cost, if that is other than before.
	Admissions []*outbidv1.Admission
	Prices     *outbidv1.Prices
}

// Grant gives free devices to a job that holds none.
type Grant struct {
	Job    *Job
	Gang   cluster.Gang
	Reason string
	// Fork: the job has a gang already, and this one beside it: two processes train it, each on its own. Other grants are
	// for jobs that wait.
	Fork bool
	// Steps are the share of a round that this fork is to train, and then end; 0 for a lease that is no part of a round. The
	// grants of a round are in one plan: the first is for the job that waits, the others are its Forks. TermEnd ends the slot:
	// whoever has not done its share by then saves and ends.
	Steps int64
	// Rate is the steps per second by which this share was made; 0 if it was not made by rates.
	Rate float64
	// TermEnd is when the lease's term ends and the policy decides on these devices anew; zero for no term. The job
	// runs on until it is revoked.
	TermEnd time.Time
}

// Renew lets a job that runs keep what it holds, on all its gangs, for another term, without a stop.
type Renew struct {
	Job     *Job
	TermEnd time.Time
	Reason  string
}

// Revoke takes a job off its devices, on all its gangs, after it saved. They are free once it has ended, which the policy sees then.
type Revoke struct {
	Job    *Job
	Reason string
}

// Bidding is a policy in which sweeps bid. Those that chose an agent outside the binary have it bid for them.
type Bidding interface {
	Policy
	// UseAgents says who answers for them from now on; nil for nobody, and then they have no bid. It answers at once, and is
	// asked about each sweep once in a round. A round's answers go into its Auction whole, one Bidder for each such sweep
	// that was asked: whoever decides the round again hears them from there. A round may be begun, to hear what it asks, and then
	// decided from the snapshot before.
	UseAgents(agent.Agent)
}
