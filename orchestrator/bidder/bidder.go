// Package bidder has the bidders of Themis's auction (NSDI 2020, section 5), called agents in the paper and in specs.
// A bidder turns the state of a sweep (an app in the paper) into its finish-time fairness rho for subsets of the
// devices on offer.
//
// A bidder is asked once a round, with one offer and the states of all sweeps that it bids for, and returns one table
// of bids for each. All its input is plain values, so that a bidder can also run in another process. A subset is
// described by gangs: a number of devices of a type on a number of machines, on any machine, in one rack or on a
// named machine. Which devices of a machine they are does not matter, so tables stay small.
package bidder

import (
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
)

// Bidder bids for sweeps. The same bidder may be asked about other sweeps every round.
type Bidder interface {
	// Bid returns one table for each state, in order. An error means that the bidder has no answer at all: then none
	// of these sweeps has a bid in this round.
	Bid(*Offer, []*AppState) ([]Table, error)
}

// MaxRows is how many rows a table may have; further rows are ignored.
const MaxRows = 64

// Offer lists the devices that are free in a round.
type Offer struct {
	// Round is the number of the round, for bidders that keep a log.
	Round uint64
	Lots  []Lot
}

// Lot is the free devices of one type on one machine.
type Lot struct {
	Node string
	// Rack is the machine's rack. All machines without a rack count as one rack "".
	Rack string
	Type string
	// Free is the number of free devices, and Slots the numbers in each slot (behind one fast link) of the machine
	// with free devices.
	Free  int
	Slots []int
}

// AppState is the current state of one sweep.
type AppState struct {
	App string
	// Bidder is the configured name of the bidder for the sweep; "" for the built-in one. Settings are the sweep's
	// settings for it, or nil.
	Bidder   string
	Settings *structpb.Struct
	// Tuner is the kind of its tuner, as in the spec: "asha", "successive_halving", "random", ….
	Tuner string
	// Weight is relative to other sweeps; usually 1.
	Weight float64
	// Elapsed is the time in seconds since the sweep was submitted: T_now - T_start of equation 1.
	Elapsed float64
	// MeanApps is N_avg: the time-weighted mean number of sweeps since it was submitted.
	MeanApps float64
	// Cluster has all devices that are up, by type. It is the same for all sweeps of a round.
	Cluster []Stock
	// Free is how many devices of each lot of the offer the sweep may use, or nil if it may use all. It takes free
	// cores and memory, trust and the requested types into account.
	Free []int
	// Jobs are the trials that hold or want devices, by number.
	Jobs []Job
	// Demand is that of the trials that are still to come, and Speeds that of their model.
	Demand cluster.Demand
	Speeds *cluster.Speeds
	// Forks and LeastForks are those of its trials, including trials still to come.
	Forks, LeastForks int
	// Concurrency is the maximum number of trials at once (limits.concurrency); 0 for no limit.
	Concurrency int
	// TotalSteps is how many steps a fully trained trial has; 0 if unknown.
	TotalSteps float64
	// StepsDone is the steps of all trials, with repeated ones counted once, and Finished the number of ended trials.
	StepsDone float64
	Finished  int
	// Outlook is how much work its tuner will do in total.
	Outlook tuner.Outlook
}

// Stock is the number of devices of a type, and the number of nodes that have them. Machines is 0 if that is unknown;
// then each device counts as on a separate node.
type Stock struct {
	Type              string
	Devices, Machines int
}

// machines returns the number of nodes that have devices of the type.
func (t *Stock) machines() int {
	if t.Machines == 0 {
		return t.Devices
	}
	return t.Machines
}

// Job is one trial that holds or wants devices. Steps are counted from the trial's start.
type Job struct {
	Trial int32
	// Done is the trial's progress, Until its current target, and Total its full training; 0 if unknown.
	Done, Until, Total float64
	// Forecast is the step before which the trial ends with a probability of at least 0.9, if its learning curve is
	// extrapolated; otherwise 0. It is the full training, because more than a tenth of the trials that get this far
	// are fully trained, however flat their curves look (docs/research/work-left.md).
	Forecast float64
	// Min and Max limit the devices of its gang. MultiNode allows a gang on several machines.
	Min, Max  int
	MultiNode bool
	// Forks is how many processes may train it at once, each with a gang on a different machine; at most 1 means a
	// single process. Their rates add up. With fewer than LeastForks it is trained by one process.
	Forks, LeastForks int
	// Types are those it may run on, all if empty; Exclude are types that it must not run on.
	Types, Exclude []string
	// Speeds are those of its model.
	Speeds *cluster.Speeds
	// Held is what it keeps in any case, because its lease has not expired. Lost is what it holds on an expired
	// lease, which is on offer: a bid for the same devices lets it continue without a stop.
	Held, Lost Holding
	// Leaving is set if its lease was revoked and it is saving. Its devices are neither its own nor on offer.
	Leaving bool
}

// Holding is a gang that a trial holds.
type Holding struct {
	Type string
	// Devices is the total number of devices, 0 for none; Machines is how many machines they are on.
	Devices, Machines int
	// Rate is its speed there in steps per second.
	Rate float64
}

// Gangs is a number of equal gangs.
type Gangs struct {
	Count int
	// Machines is how many machines one gang uses, and Devices how many devices on each of them.
	Machines, Devices int
	Type              string
	// Node or Rack restricts where they may be; "" is any.
	Node, Rack string
}

// Size returns the number of devices of all gangs.
func (g Gangs) Size() int { return g.Count * g.Machines * g.Devices }

// Row is the bid for a subset of the offer: the sweep's rho if it kept its own devices and also held these gangs
// until it is done.
type Row struct {
	Gangs []Gangs
	Rho   float64
}

// Table is a sweep's bid. At most one of its rows wins.
type Table struct {
	// Rho is the value for winning nothing. It is finite: for a sweep without devices it contains the cost of
	// waiting.
	Rho float64
	// Ideal is T_id: the seconds that the sweep would take alone on its share.
	Ideal float64
	Rows  []Row
	// Refused is the reason for not bidding, or "". If it is set, the other fields are ignored.
	Refused string
}

// By restates a table for another T_id, without a change of the times that its rows imply. So a bidder cannot shift
// rho by its own idea of T_id.
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
