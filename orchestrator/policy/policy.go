// Package policy decides who gets which device: it turns a view of the cluster and its sweeps into a plan of grants.
// A Policy is pure: it sees an immutable view with the time in it, and returns a plan in which every decision carries
// its reason. The same policies run live, in the simulator and in replay.
package policy

import (
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// A Policy is asked whenever something changed that could change its answer, and at the latest at Plan.Next.
type Policy interface {
	// Name is the policy's name in the registry.
	Name() string
	// Decide returns what should change. It must not keep or change the view.
	Decide(*View) Plan
	// Snapshot returns the policy's state, random state included; nil if it has none.
	Snapshot() ([]byte, error)
	// Restore goes on from a snapshot.
	Restore([]byte) error
}

// View is what a policy sees. Nodes are sorted by name, apps by submission, jobs by app and then first come first.
type View struct {
	Now   time.Time
	Round uint64
	Nodes []cluster.Node
	Apps  []App
	Jobs  []Job
}

// App is a sweep that is running.
type App struct {
	ID        string
	Tenant    string
	Submitted time.Time
	// DeviceSeconds it has used so far.
	DeviceSeconds float64
}

// Job is a trial that holds devices or wants some.
type Job struct {
	// App is the index in View.Apps.
	App    int
	Trial  int32
	Demand cluster.Demand
	// Queued since; zero if it runs.
	Queued time.Time
	// Node and Devices it holds; empty if none.
	Node    string
	Devices []int
	// Granted is when its lease began.
	Granted time.Time
	// Ending: its lease was revoked and is about to end.
	Ending bool
	// Step and UntilStep say how far it is and how far it is to go.
	Step, UntilStep int64
}

// Running says whether the job holds devices.
func (j *Job) Running() bool { return len(j.Devices) > 0 }

// Plan is what should change.
type Plan struct {
	Grants  []Grant
	Revokes []Revoke
	// Reason explains the round.
	Reason string
	// Next is when the policy wants to be asked again although nothing happened; zero for never.
	Next time.Time
}

// Grant gives free devices of one node to a job that holds none.
type Grant struct {
	// Job is the index in View.Jobs.
	Job     int
	Node    string
	Devices []int
	Reason  string
	// TermEnd is when the policy means to decide on these devices anew; zero for no term.
	TermEnd time.Time
}

// Revoke takes a job off its devices after it saved.
type Revoke struct {
	// Job is the index in View.Jobs.
	Job    int
	Reason string
}

// Capacity is what is free in the view.
func (v *View) Capacity() *cluster.Capacity {
	var uses []cluster.Use
	for i := range v.Jobs {
		if j := &v.Jobs[i]; j.Running() {
			uses = append(uses, cluster.Use{Node: j.Node, CPUs: j.Demand.CPUs, Memory: j.Demand.Memory})
		}
	}
	return cluster.NewCapacity(v.Nodes, uses)
}
