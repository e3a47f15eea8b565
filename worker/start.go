package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/confine"
	"github.com/outbid-dev/outbid/worker/health"
	"github.com/outbid-dev/outbid/worker/inventory"
	"github.com/outbid-dev/outbid/worker/process"
	"github.com/outbid-dev/outbid/worker/program"
	"github.com/outbid-dev/outbid/worker/session"
)

// starter starts training code in processes.
type starter struct {
	cfg      Config
	host     *process.Host
	confiner *confine.Confiner
	sessions *session.Server
	blobs    blobs
	owners   *owners
	waiting  waiting
	// inherited holds the variables that every trial gets from the worker's environment, computed once by inherit.
	inheriting sync.Once
	inherited  []string
}

// start makes a fork's scratch directory, fetches its function and checkpoint, and starts its training code.
func (s *starter) start(ctx context.Context, f *fork) (training, error) {
	s.owners.set(f.ref.GetSweep(), f.body.GetTenant())
	if f.secrets.unopened != nil {
		return nil, f.secrets.unopened
	}
	w := f.body.GetWorkload()
	if w.GetFunction() == nil && w.GetProgram() == nil {
		return nil, fail(outbidv1.FailureKind_FAILURE_KIND_START, "this worker (%s) does not know the kind of work; "+
			"update it", s.cfg.Version)
	}
	if fn := w.GetFunction(); fn != nil {
		if err := s.authenticate(fn); err != nil {
			return nil, err
		}
	}
	if err := s.checkNetwork(f); err != nil {
		return nil, err
	}
	if err := s.holdDevices(ctx, f); err != nil {
		return nil, err
	}
	if err := f.disk.checkFree(); err != nil {
		return nil, s.nodeFailure(err)
	}
	if err := f.files.makeScratch(); err != nil {
		return nil, s.nodeFailure(err)
	}
	checkpoint, err := s.checkpoint(ctx, f)
	if err != nil {
		return nil, err
	}
	if w.GetFunction() != nil {
		return s.startFunction(ctx, f, checkpoint)
	}
	return s.startProgram(ctx, f, checkpoint)
}

// authenticate verifies that the worker's server has signed the function. Otherwise anyone who can write to the bus
// could run code here.
func (s *starter) authenticate(fn *outbidv1.FunctionBody) error {
	switch {
	case s.cfg.Server == nil:
		return fail(outbidv1.FailureKind_FAILURE_KIND_START, "this worker runs no functions: it does not know the key of its "+
			"server ('outbid worker join')")
	case s.cfg.Server.Function(fn.GetBlob(), fn.GetSignature()) != nil:
		return fail(outbidv1.FailureKind_FAILURE_KIND_START, "the function is not signed by the server that this worker has "+
			"joined, so it is not run here")
	}
	return nil
}

// checkNetwork rejects gangs over several nodes if trials have no network.
func (s *starter) checkNetwork(f *fork) error {
	if g := f.body.GetGang(); s.cfg.TrialNetwork == confine.NetworkNone && g.GetPlaces() > 1 {
		return fail(outbidv1.FailureKind_FAILURE_KIND_START, "trials of node %s have no network (--trial-network none), and this one is a gang over %d "+
			"nodes, which needs one", s.cfg.Node, g.GetPlaces())
	}
	return nil
}

// nodeFailure wraps an error of the worker's own directory or of files made for a trial as a failure of the node, so
// that the trial is tried on another node.
func (s *starter) nodeFailure(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fail(outbidv1.FailureKind_FAILURE_KIND_NODE, "no room left on the disk of the worker's directory %s of node %s",
			s.cfg.Dir, s.cfg.Node)
	}
	return fail(outbidv1.FailureKind_FAILURE_KIND_NODE, "the worker of node %s: %s", s.cfg.Node, oneLine(err))
}

// retryStore calls try until the store is available or ctx ends. It tells the user once that the trial waits.
func (s *starter) retryStore(ctx context.Context, f *fork, what string, try func() error) error {
	var retry backoff
	for told := false; ; {
		err := try()
		if !errors.Is(err, objects.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
		if !told {
			told = true
			f.messages.note("warning", fmt.Sprintf("%s waits for %s: %s", trialName(f.ref), what, storeTrouble(f.store(), err)))
		}
		select {
		case <-time.After(retry.pause()):
		case <-ctx.Done():
			return err
		}
	}
}

func (s *starter) startFunction(ctx context.Context, f *fork, checkpoint string) (training, error) {
	shards, err := s.shards(ctx, f, checkpoint)
	if err != nil {
		return nil, err
	}
	fn := f.body.GetWorkload().GetFunction()
	var blob string
	err = s.retryStore(ctx, f, "its function", func() (err error) {
		blob, err = s.blobs.get(ctx, f.store(), fn.GetBlob())
		return err
	})
	switch {
	case health.OfNode(err):
		return nil, s.nodeFailure(err)
	case errors.Is(err, objects.ErrRefused):
		return nil, fail(outbidv1.FailureKind_FAILURE_KIND_NODE, "the function cannot be read on node %s: %s", s.cfg.Node, oneLine(err))
	case err != nil:
		return nil, fail(outbidv1.FailureKind_FAILURE_KIND_START, "the function cannot be fetched: %s", oneLine(err))
	}
	if s.cfg.closed { // the trial cannot read the worker's own copy
		own := filepath.Join(f.files.trialDir(), "function")
		if err := copyFile(blob, own); err != nil {
			return nil, s.nodeFailure(err)
		}
		blob = own
	}
	spec := session.Spec{
		Owner: s.owner(f), Limits: s.limits(f), Prepare: f.files.setConfinement,
		Argv: s.command(fn), Env: s.environ(f, fn.GetEnv()), Dir: s.workdir(fn.GetWorkdir()), Function: fn.GetBlob(),
		Devices: f.body.GetDevices(), Speed: inventory.Speed(s.cfg.Machine.Devices, f.body.GetDevices()), Fresh: fn.GetFreshProcess(),
		Mask: f.secrets.mask,
	}
	t, err := s.startSessions(ctx, f, spec, &outbidv1.TrialAssignment{
		Fork: f.ref, ConfigJson: f.body.GetConfigJson(), FunctionPath: blob, StartStep: f.body.GetStart().GetStep(),
		UntilStep: f.orders.target(), CheckpointPath: checkpoint, Scratch: f.files.trialDir(), Seed: f.body.GetSeed(), Devices: s.devices(f),
		Metric: f.body.GetMetric(), Mode: f.body.GetMode(), SaveEvery: f.body.GetSaveEvery(), KeepBest: f.body.GetKeepBest(), Part: f.body.GetPart(),
		Traceparent:        f.telemetry.traceparent(),
		ShardedCheckpoints: f.body.GetShardedCheckpoints(), StartShards: shards,
	})
	if err == nil {
		return t, nil
	}
	if e := (*session.StartError)(nil); errors.As(err, &e) {
		return nil, fail(e.Kind, "%s (node %s)%s", e.Detail, s.cfg.Node, hint(e.Detail, spec.Argv[0]))
	}
	return nil, err
}

// hint returns advice about the most common reason why a function does not start.
func hint(detail, python string) string {
	if !strings.Contains(detail, "No module named 'outbid'") && !strings.Contains(detail, "No module named outbid") {
		return ""
	}
	return fmt.Sprintf("; install it there: %s -m pip install outbid", python)
}

func (s *starter) command(fn *outbidv1.FunctionBody) []string {
	if len(s.cfg.FunctionCommand) > 0 {
		return s.cfg.FunctionCommand
	}
	python := fn.GetPython()
	if python == "" || python == "python3" {
		python = s.cfg.Python
	}
	return []string{python, "-m", "outbid.trial_process"}
}

// workdir returns the directory in which a function runs: the user's directory, if this node has it and the trial may
// enter it. Empty means the home directory of the trial's user.
func (s *starter) workdir(dir string) string {
	info, err := os.Stat(dir)
	there := dir != "" && err == nil && info.IsDir()
	switch {
	case there && s.confiner.Reaches(dir):
		return dir
	case s.cfg.closed:
		return ""
	}
	return s.cfg.Dir
}

// owner returns the sweep as the owner of a process if trials are isolated, so that a process never runs trials of
// two sweeps.
func (s *starter) owner(f *fork) string {
	if s.cfg.closed {
		return f.ref.GetSweep()
	}
	return ""
}

// limits returns the resources that the sweep declared for its trials.
func (s *starter) limits(f *fork) confine.Limits {
	return confine.Limits{CPUs: f.body.GetCpus(), MemoryBytes: f.body.GetMemoryBytes()}
}

func (s *starter) startProgram(ctx context.Context, f *fork, checkpoint string) (training, error) {
	p := f.body.GetWorkload().GetProgram()
	if err := s.sessions.Free(ctx, f.body.GetDevices()); err != nil {
		return nil, err
	}
	dir := p.GetWorkdir()
	if dir == "" {
		dir = f.files.trialDir()
	}
	in, err := s.confiner.New(ctx, s.limits(f))
	if err != nil {
		return nil, s.nodeFailure(err)
	}
	f.files.atEnd(in.Close)
	if err := f.files.setConfinement(in); err != nil {
		return nil, s.nodeFailure(err)
	}
	g, err := s.programGang(f)
	if err != nil {
		return nil, err
	}
	run, err := program.Start(ctx, program.Spec{
		Host: s.host, In: in, Fork: f.ref, Logger: f.telemetry.logger(), Argv: p.GetArgv(), Env: s.environ(f, p.GetEnv()), Dir: dir,
		ConfigJSON: f.body.GetConfigJson(), Scratch: f.files.trialDir(), Keep: f.files.workerDir(), CheckpointBytes: s.cfg.CheckpointBytes, StartStep: f.body.GetStart().GetStep(),
		Checkpoint: checkpoint, UntilStep: f.orders.target(), Metric: f.body.GetMetric(), Seed: f.body.GetSeed(),
		Devices: f.body.GetDevices(), Gang: g, Part: f.body.GetPart(), Grace: p.GetGrace().AsDuration(),
		Speed:  inventory.Speed(s.cfg.Machine.Devices, f.body.GetDevices()),
		Output: func(stream process.Stream, line []byte) { log(s.cfg, s.owners, f.ref, stream, line) }, Mask: f.secrets.mask,
	}, f)
	if err != nil {
		return nil, err
	}
	return run, nil
}

func (s *starter) devices(f *fork) []*outbidv1.Device {
	var granted []*outbidv1.Device
	for _, d := range s.cfg.Machine.Devices {
		if slices.Contains(f.body.GetDevices(), d.GetIndex()) {
			granted = append(granted, d)
		}
	}
	return granted
}

// owners maps the sweeps whose trials ran here to their tenants, because output is stored by tenant.
type owners struct{ tenants sync.Map }

func (o *owners) set(sweep, tenant string) { o.tenants.Store(sweep, tenant) }

func (o *owners) tenantOf(sweep string) string {
	tenant, _ := o.tenants.Load(sweep)
	text, _ := tenant.(string)
	return text
}

// log sends a line of output. Of a progress bar that redraws itself, it sends only what a terminal would show last.
func log(cfg Config, whose *owners, fork *outbidv1.ForkRef, stream process.Stream, line []byte) {
	line = lastDrawn(line)
	data := make([]byte, 0, len(line)+1)
	data = append(append(data, line...), '\n')
	err := cfg.Bus.Log(&outbidv1.LogChunk{
		Fork: fork, Node: cfg.Node, Tenant: whose.tenantOf(fork.GetSweep()), Data: data, Stream: string(stream), TimeUnixMs: time.Now().UnixMilli(),
	})
	if err != nil {
		cfg.Logger.LogAttrs(context.Background(), slog.LevelDebug, "output of a trial was lost", slog.Any("error", err))
	}
}

func lastDrawn(line []byte) []byte {
	text := strings.TrimRight(string(line), "\r")
	if i := strings.LastIndexByte(text, '\r'); i >= 0 {
		text = text[i+1:]
	}
	return []byte(text)
}

// oneLine returns an error's text as one line for the user.
func oneLine(err error) string { return sanitize.Line(err.Error(), limits.Detail) }
