// Package agent speaks for apps in Themis's auction (NSDI 2020, section 5): it turns what is known of an app into its
// finish-time fairness rho for subsets of the devices on offer.
//
// An agent is asked once a round, with one offer and the states of all apps that it speaks for, and answers with one
// table of bids each. Everything it needs comes as plain values, so that an agent can as well live in another process.
// A subset is described by gangs: so many devices of a type on so many machines, on any machine, in one rack or on a
// named machine. Which devices of a machine they are does not matter, and so tables stay small.
package agent

import (
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
)

// An Agent answers for apps. The same agent may be asked about other apps every round.
type Agent interface {
	// Bid returns one table for each state, in order. An error means that the agent could not answer at all: then
	// every one of these apps is without a bid in this round.
	Bid(*Offer, []*AppState) ([]Table, error)
}

// MaxRows bounds the rows of a table; what an agent lists beyond is not read.
const MaxRows = 64

// Offer is what is free in a round.
type Offer struct {
	// Round is the number of the round, for agents that keep a log.
	Round uint64
	Lots  []Lot
}

// Lot is the free devices of one type on one machine.
type Lot struct {
	Node string
	// Rack that the machine stands in; "" is one rack for all that did not say.
	Rack string
	Type string
	// Free devices, and of these how many in each slot (behind one fast link) of the machine that has any.
	Free  int
	Slots []int
}

// AppState is one app as it stands.
type AppState struct {
	App string
	// Agent that answers for the app, by the name that the server knows it by; "" for the server's own. Settings are what
	// the sweep says to an agent of its choice; nil for nothing.
	Agent    string
	Settings *structpb.Struct
	// Tuner is its kind, as in the spec: "asha", "successive_halving", "random", ….
	Tuner string
	// Weight relative to other apps; 1 is usual.
	Weight float64
	// Elapsed seconds since the app was submitted: T_now - T_start of equation 1.
	Elapsed float64
	// MeanApps is N_avg: the time-weighted mean number of apps over the app's life so far.
	MeanApps float64
	// Cluster is every device that is up, by type; the same for all apps of a round.
	Cluster []Stock
	// Free devices of each lot of the offer that the app may use; nil if it may use all. Free cores and memory, trust
	// and wanted types are in it.
	Free []int
	// Jobs that hold devices or want some, by number.
	Jobs []Job
	// Demand of the jobs that are still to come, and Speeds of their model.
	Demand cluster.Demand
	Speeds *cluster.Speeds
	// Forks and LeastForks are those of its jobs, the ones that are still to come too.
	Forks, LeastForks int
	// TotalSteps of a job trained to its end; 0 if unknown.
	TotalSteps float64
	// StepsDone by all jobs, repeated ones counted once, and Finished jobs.
	StepsDone float64
	Finished  int
	// Outlook is how much work its tuner will do in all.
	Outlook tuner.Outlook
}

// Stock is how many devices of a type there are, and Machines how many nodes they are on; 0 if nobody says, then each is on one of
// its own.
type Stock struct {
	Type              string
	Devices, Machines int
}

// machines that have devices of the type.
func (t *Stock) machines() int {
	if t.Machines == 0 {
		return t.Devices
	}
	return t.Machines
}

// Job is one trial that holds devices or wants some. Steps are counted from the trial's start.
type Job struct {
	Trial int32
	// Done is how far it is, Until how far it is to go now, and Total if it is trained to its end; 0 if unknown.
	Done, Until, Total float64
	// Forecast is the step by which it ends, in nine cases of ten at least, where its learning curve is looked at; 0 without
	// one. It is its whole training: of the trials that got so far more than a tenth are trained to the end, however flat their
	// curves look (docs/research/work-left.md).
	Forecast float64
	// Min and Max devices of its gang; MultiNode says that the gang may run over several machines.
	Min, Max  int
	MultiNode bool
	// Forks are how many processes may train it at once, each with a gang on a machine of its own: 1 or less for one alone. Their
	// rates add up. LeastForks is below how many it is trained by one.
	Forks, LeastForks int
	// Types it may run on, all if empty, and types it must not run on.
	Types, Exclude []string
	// Speeds of its model.
	Speeds *cluster.Speeds
	// Held is what it keeps whatever the round brings: its lease is not up. Lost is what it holds on a lease that is up,
	// and that is on offer: a bid for the same lets it go on without a stop.
	Held, Lost Holding
	// Leaving: its lease was revoked and it is saving; what it holds is neither its own nor on offer.
	Leaving bool
}

// Holding is a gang as it is held.
type Holding struct {
	Type string
	// Devices in all; 0 for nothing. Machines that they are on.
	Devices, Machines int
	// Rate in steps per second there.
	Rate float64
}

// Gangs are a number of alike gangs.
type Gangs struct {
	Count int
	// Machines that one gang is spread over, and its devices on each of them.
	Machines, Devices int
	Type              string
	// Node that they must be on, or Rack; any for "".
	Node, Rack string
}

// Size is the devices of all of them.
func (g Gangs) Size() int { return g.Count * g.Machines * g.Devices }

// Row says what a subset of the offer would be worth: the app's rho if it held these gangs, beside what it keeps, until
// it is done.
type Row struct {
	Gangs []Gangs
	Rho   float64
}

// Table is an app's bid: at most one of its rows is granted.
type Table struct {
	// Rho if it is granted nothing. It is finite: an app that holds nothing is asked what waiting costs it.
	Rho float64
	// Ideal is T_id: the seconds that the app would take alone on its share.
	Ideal float64
	Rows  []Row
	// Refused says why there is no bid; then the rest is not read.
	Refused string
}

// By restates a table by another T_id: what its rows say of the time that the app would take stays. So nobody who bids can
// move rho by another idea of T_id than the arbiter's.
func (t *Table) By(ideal float64) {
	if t.Refused != "" || t.Ideal == ideal {
		return
	}
	factor := t.Ideal / ideal
	t.Ideal = ideal
	t.Rho *= factor
	for i := range t.Rows {
		t.Rows[i].Rho *= factor
	}
}
