// Package worker is the agent on a machine with devices: it tells the orchestrator what the machine has, does what its
// orders say (forks of trials, started, directed and ended), and delivers what they report, each message until it is
// acknowledged. It knows orders only, never the orchestrator's state.
//
// Orders are desired state: a fork that is not in them is ended. They are also the node's lease: without new ones for
// its time the worker ends every fork by itself, so that a device has one owner even if the network is cut.
package worker

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/confine"
	"github.com/outbid-dev/outbid/worker/inventory"
	"github.com/outbid-dev/outbid/worker/program"
)

// Bus is how a worker reaches the orchestrator. Its methods may be called concurrently.
type Bus interface {
	// Publish sends what the worker says; it may get lost on the way. The error is bus.ErrNotConnected if there is no
	// connection now, and bus.ErrRefused if this uplink cannot be sent over any connection.
	Publish(up *outbidv1.Uplink) error
	// MaxUplink is how many bytes an encoded uplink may have on the connection as it is now.
	MaxUplink() int
	// Subscribe calls f with each orders for the node, one at a time, until stop, which waits for f to return.
	Subscribe(node string, f func(*outbidv1.Orders)) (stop func() error, err error)
	// Reconnected calls f whenever the connection is back, until stop, which waits for f to return.
	Reconnected(f func()) (stop func())
	// Log takes output of a trial; it does not block and keeps no reference to the chunk.
	Log(chunk *outbidv1.LogChunk) error
}

// Config is what a worker needs.
type Config struct {
	// Node is the machine's name, unique in the cluster.
	Node string
	// Boot is new at every start; empty makes one up.
	Boot string
	// Machine is what the worker offers.
	Machine inventory.Machine
	// Share claims the machine's devices while trials use them; nil if they are the worker's for its life.
	Share *inventory.Share
	// Waits hears why a trial waits for devices that another process uses, and "" when none waits any more; may be nil.
	Waits func(why string)
	Bus   Bus
	// Store is where checkpoints and functions are.
	Store Store
	// Server checks that the server to which this worker belongs has signed a function. Without it no function runs.
	Server *identity.Verifier
	// Dir is the worker's own directory, for scratch files and its list of processes. One worker at a time can use it.
	Dir string
	// Python runs functions that name no interpreter but plain "python3"; empty means python3.
	Python string
	// FunctionCommand replaces the command that runs functions, by default the interpreter with -m outbid._trial.
	FunctionCommand []string
	// PassEnv are patterns of names of the worker's environment variables that training code sees beside those that it
	// needs anyway; see CheckPassEnv.
	PassEnv []string
	// TrialUser is who training code runs as, as confine.Config has it; TrialGroups are groups that it keeps, and TrialDir
	// is where its files are if it runs as another user.
	TrialUser   string
	TrialGroups []string
	TrialDir    string
	// TrustTrials runs code of a server's tenants as the worker's own user, with all that this user may do.
	TrustTrials bool
	// AverageRate is how many bytes a second one average of what forks saved may read, so that other work of the machine does not notice it; 0
	// means no limit.
	AverageRate int64
	// CheckpointBytes is how many bytes a checkpoint may have, by the length of its files; 0 means
	// program.DefaultCheckpointBytes.
	CheckpointBytes int64
	// ScratchBytes is how many bytes the files of one trial may take on the disk, and DiskMargin how many stay free there: with less the worker takes no new
	// trials, and ends the one whose files take the most. 0 means DefaultScratchBytes and DefaultDiskMargin, a negative number no bound.
	ScratchBytes, DiskMargin int64
	// NoDiskHold never holds up trials that write so much that others on the node wait for the disk.
	NoDiskHold bool
	// TrialProcesses is how many processes and threads one trial may have, and TrialFiles how many files each process may have open. 0
	// means confine.DefaultProcesses and confine.DefaultFiles, a negative number no bound.
	TrialProcesses, TrialFiles int64
	// TrialNetwork is confine.NetworkHost or confine.NetworkNone; empty means the first.
	TrialNetwork string
	// Warn has the worker log at WARN what of trials it cannot limit on this machine.
	Warn bool
	// Version of the program, and Labels of the node, for listings.
	Version string
	Labels  map[string]string
	Logger  *slog.Logger
	// DrainTimeout bounds how long trials may take to save and end when the worker is stopped; 0 means 30 s.
	DrainTimeout time.Duration
	// FlushTimeout bounds how long the last messages may take to be acknowledged then; 0 means 5 s.
	FlushTimeout time.Duration
	// IdleAfter is how long a training process without a trial is kept; 0 means 60 s.
	IdleAfter time.Duration

	// files is where the files of trials are, each in a directory of its own; closed says that a trial's own are in one
	// below that, which belongs to another user.
	files  string
	closed bool
	// spares are directories of trials that ended, for others.
	spares *spares
	// warnings are what of trials cannot be limited on this machine.
	warnings []string
}

// Timing of the protocol.
const (
	// beatEvery is how often the orchestrator hears of the worker, whether or not there is news.
	beatEvery = time.Second
	// resendAfter is when what was not acknowledged is sent again.
	resendAfter = time.Second
	// rivalPatience is how long a worker bears that another one of its name gets all the orders. The orchestrator takes a
	// worker that was killed for alive for some seconds, and so the one that was started in its place for a rival.
	rivalPatience = 10 * time.Second
	// defaultLease is used for orders that carry none.
	defaultLease = 15 * time.Second

	defaultDrain = 30 * time.Second
	defaultFlush = 5 * time.Second
)

func (c *Config) check() error {
	switch {
	case c.Bus == nil:
		return errors.New("worker: no bus")
	case c.Store == nil:
		return errors.New("worker: no object store")
	case c.Dir == "":
		return errors.New("worker: no directory")
	case len(c.Machine.Devices) == 0:
		return errors.New("worker: no devices")
	}
	if err := bus.CheckToken("node", c.Node); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	if err := CheckPassEnv(c.PassEnv); err != nil {
		return fmt.Errorf("worker: variables to pass on: %w", err)
	}
	if err := CheckLabels(c.Labels); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	if c.AverageRate != 0 && c.AverageRate < LeastAverageRate {
		return fmt.Errorf("worker: averages that read %d bytes a second: want at least %d, or 0 for no limit", c.AverageRate, LeastAverageRate)
	}
	if c.Boot == "" {
		c.Boot = rand.Text()
	}
	if c.files == "" {
		c.files = filepath.Join(c.Dir, "scratch")
	}
	c.spares = &spares{dir: c.files}
	c.CheckpointBytes = cmp.Or(c.CheckpointBytes, program.DefaultCheckpointBytes)
	if c.CheckpointBytes < 0 {
		return fmt.Errorf("worker: checkpoints of %d bytes: want at least 1, or 0 for the default", c.CheckpointBytes)
	}
	c.ScratchBytes, c.DiskMargin = cmp.Or(c.ScratchBytes, DefaultScratchBytes), cmp.Or(c.DiskMargin, DefaultDiskMargin)
	c.TrialProcesses, c.TrialFiles = cmp.Or(c.TrialProcesses, confine.DefaultProcesses), cmp.Or(c.TrialFiles, confine.DefaultFiles)
	if c.Python == "" {
		c.Python = "python3"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = defaultDrain
	}
	if c.FlushTimeout == 0 {
		c.FlushTimeout = defaultFlush
	}
	return nil
}

// CheckLabels returns what is wrong with the labels of a node, or nil.
func CheckLabels(labels map[string]string) error {
	if len(labels) > limits.LabelCount {
		return fmt.Errorf("%d labels: at most %d are allowed", len(labels), limits.LabelCount)
	}
	for name, value := range labels {
		if err := sanitize.Check(name, limits.LabelName); err != nil {
			return fmt.Errorf("label %q: its name %w", sanitize.Line(name, shownName), err)
		}
		if err := sanitize.Check(value, limits.Label); err != nil {
			return fmt.Errorf("label %q: its value %w", name, err)
		}
	}
	return nil
}
