// Package worker runs trials on a machine with devices. It tells the orchestrator what the machine has, executes its
// orders (start, direct and end forks of trials), and delivers the forks' reports, each message until it is
// acknowledged. It knows only its orders, never the orchestrator's state.
//
// Orders are desired state: a fork that they do not list is ended. They are also the node's lease: if no new orders
// come in time, the worker ends every fork by itself, so that a device has one owner even if the network is cut.
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
	"github.com/outbid-dev/outbid/orchestrator/tracing"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/confine"
	"github.com/outbid-dev/outbid/worker/inventory"
	"github.com/outbid-dev/outbid/worker/program"
	"github.com/outbid-dev/outbid/worker/spot"
)

// Bus connects a worker to the orchestrator. Its methods may be called concurrently.
type Bus interface {
	// Publish sends an uplink, which may get lost on the way. The error is bus.ErrNotConnected if the connection is
	// lost, and bus.ErrRefused if this uplink cannot be sent over any connection.
	Publish(up *outbidv1.Uplink) error
	// MaxUplink returns how many bytes an encoded uplink may have on the current connection.
	MaxUplink() int
	// Subscribe calls f with the orders for the node, one message at a time. stop ends that and waits for f to
	// return.
	Subscribe(node string, f func(*outbidv1.Orders)) (stop func() error, err error)
	// Reconnected calls f whenever the connection is back. stop ends that and waits for f to return.
	Reconnected(f func()) (stop func())
	// Log sends output of a trial. It does not block and does not keep a reference to the chunk.
	Log(chunk *outbidv1.LogChunk) error
}

// Config configures a worker.
type Config struct {
	// Node is the machine's name, unique in the cluster.
	Node string
	// Boot identifies this start of the worker and must be new each time. If it is empty, Run generates one.
	Boot string
	// Machine describes what the worker offers.
	Machine inventory.Machine
	// Share claims the machine's devices while trials use them; nil if the worker owns them for as long as it runs.
	Share *inventory.Share
	// Waits is called with the reason when a trial waits for devices that another process uses, and with "" when no
	// trial waits any more. It may be nil.
	Waits func(why string)
	Bus   Bus
	// Store gives access to checkpoints and functions.
	Store Store
	// Server verifies that the worker's server has signed a function. If it is nil, the worker runs no functions.
	Server *identity.Verifier
	// Dir is the worker's own directory, for scratch files and its list of processes. Only one worker at a time can
	// use it.
	Dir string
	// Python is the interpreter for functions that name none, or only "python3". Empty means python3.
	Python string
	// FunctionCommand replaces the command that runs functions. The default is the interpreter with -m outbid.trial_process.
	FunctionCommand []string
	// PassEnv lists patterns of environment variables of the worker that training code gets in addition to the ones
	// that it always gets; see CheckPassEnv.
	PassEnv []string
	// TrialUser is the user that training code runs as, in the format of confine.Config. TrialGroups are the groups
	// that it keeps. TrialDir holds its files if it runs as another user than the worker.
	TrialUser   string
	TrialGroups []string
	TrialDir    string
	// TrustTrials allows code of a server's tenants to run as the worker's own user, with all of that user's rights.
	TrustTrials bool
	// AverageRate limits how many bytes a second the computation of one average of forks may read, so that it does
	// not slow down other work on the machine. 0 means no limit.
	AverageRate int64
	// CheckpointBytes limits the size of a checkpoint, which is the sum of the lengths of its files. 0 means
	// program.DefaultCheckpointBytes.
	CheckpointBytes int64
	// ScratchBytes limits how much disk space the files of one trial may take. DiskMargin is how much of the disk has
	// to stay free: if less is free, the worker accepts no new trials and ends the trial with the most files on disk.
	// 0 means DefaultScratchBytes and DefaultDiskMargin, a negative number no limit.
	ScratchBytes, DiskMargin int64
	// NoDiskHold turns off the throttling of trials whose writes make other trials on the node wait for the disk.
	NoDiskHold bool
	// TrialProcesses limits the processes and threads of a trial, and TrialFiles the open files of each of its
	// processes. 0 means confine.DefaultProcesses and confine.DefaultFiles, a negative number no limit.
	TrialProcesses, TrialFiles int64
	// TrialNetwork is confine.NetworkHost or confine.NetworkNone. Empty means confine.NetworkHost.
	TrialNetwork string
	// Warn raises the log message about resources that the worker cannot limit on this machine from INFO to WARN.
	Warn bool
	// Version of the program and Labels of the node are shown in listings.
	Version string
	Labels  map[string]string
	Logger  *slog.Logger
	// Tracer records the spans of trials' processes; nil records none.
	Tracer *tracing.Tracer
	// Spot says whether the machine is about to be taken away; nil if that is not known. Then trials save and continue on
	// other nodes.
	Spot spot.Source
	// DrainTimeout bounds how long trials may take to save and end when the worker is stopped, and to store what they
	// saved. 0 means 30 s.
	DrainTimeout time.Duration
	// LoneServer says that only the server in this process can give the worker's trials to other workers. It is paused
	// with the worker, so that the trials may then continue.
	LoneServer bool
	// FlushTimeout bounds how long the worker then waits until its last messages are acknowledged. 0 means 5 s.
	FlushTimeout time.Duration
	// IdleAfter is how long a training process without a trial is kept. 0 means 60 s.
	IdleAfter time.Duration

	// files is the directory of the trials' files; each trial has its own directory there. If closed is set, trials
	// run as other users and each trial's directory has a subdirectory that its user owns.
	files  string
	closed bool
	// spares keeps directories of ended trials for reuse.
	spares *spares
	// warnings lists the resources of trials that cannot be limited on this machine.
	warnings []string
}

// Timing of the protocol.
const (
	// beatEvery is the time between two heartbeats to the orchestrator.
	beatEvery = time.Second
	// resendAfter is the time after which an unacknowledged uplink is sent again.
	resendAfter = time.Second
	// rivalPatience is how long a worker runs while another worker of the same name gets all orders. After a worker
	// is killed, the orchestrator believes it alive for some seconds and treats its replacement as a rival.
	rivalPatience = 10 * time.Second
	// defaultLease is used if the orders do not carry a lease.
	defaultLease = 15 * time.Second

	// DefaultDrainTimeout is DrainTimeout for a worker in a separate process: the longest pause, and time to store the
	// checkpoint.
	DefaultDrainTimeout = pauseGrace + 30*time.Second

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
	if c.DrainTimeout < 0 {
		return fmt.Errorf("worker: drain timeout: must be more than 0, or 0 for the default, got %s", c.DrainTimeout)
	}
	if c.AverageRate != 0 && c.AverageRate < LeastAverageRate {
		return fmt.Errorf("worker: average rate: must be at least %d bytes a second, or 0 for no limit, got %d", LeastAverageRate, c.AverageRate)
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
		return fmt.Errorf("worker: checkpoint bytes: must be at least 1, or 0 for the default, got %d", c.CheckpointBytes)
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

// CheckLabels returns why the labels of a node are invalid, or nil.
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
