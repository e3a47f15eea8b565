// Package policy decides who gets which device: it turns a view of the cluster and its sweeps into a plan of grants.
// A Policy is pure: it sees an immutable view with the time in it, and returns a plan in which every decision carries
// its reason. The same policies run live, in the simulator and in replay.
package policy

import "time"

// A Policy is asked whenever something changed that could change its answer, and at the latest after Plan.Next.
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

// View is what a policy sees. Slices are sorted: nodes by name, apps by submission, jobs by app and number.
type View struct {
	Now   time.Time
	Round uint64
	Nodes []Node
	Apps  []App
	Jobs  []Job
}

// Node is a node that is up.
type Node struct {
	Name    string
	Devices []Device
	CPUs    float64
	Memory  int64
	// Trusted nodes may run functions sent by users.
	Trusted bool
	// Draining nodes take nothing new.
	Draining bool
}

// Device is one device and who holds it.
type Device struct {
	Index int
	Type  string
	// Job is the index in View.Jobs of the job that holds it, -1 if it is free, -2 if it is held by something that
	// is not to be counted on (a fork that is ending or whose node is lost).
	Job int
}

// App is a sweep that is running.
type App struct {
	ID        string
	Tenant    string
	Submitted time.Time
	// Held is the number of devices its jobs hold.
	Held int
	// DeviceSeconds it has used so far.
	DeviceSeconds float64
	// Concurrency is how many of its jobs may hold devices at once; 0 for no bound.
	Concurrency int
}

// Job is a trial that holds devices or wants some.
type Job struct {
	// App is the index in View.Apps.
	App   int
	Trial int32
	// Min and Max devices.
	Min, Max int
	// Types it may run on; empty for any. Exclude wins.
	Types, Exclude []string
	CPUs           float64
	Memory         int64
	// NeedsTrust is set for functions sent by users.
	NeedsTrust bool
	// Queued since; zero if it runs.
	Queued time.Time
	// Node and Devices it holds; empty if none.
	Node    string
	Devices []int
	// Granted is when its lease began.
	Granted time.Time
	// Step and UntilStep say how far it is and how far it is to go.
	Step, UntilStep int64
}

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
	Job    int
	Reason string
}
