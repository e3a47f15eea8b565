package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// fork is one trial under one lease, from its assignment until its end is in the ledger.
type fork struct {
	cfg     *Config
	start   func(ctx context.Context, f *fork) (training, error)
	changed func()
	// bites returns how often the watchdog has ended the worker's trials, and bitten is how often before this fork.
	bites  func() int64
	bitten int64
	disk   *diskWatch
	ref    *outbidv1.ForkRef
	body   *outbidv1.AssignmentBody

	orders    *forkOrders
	messages  *forkMessages
	files     *forkFiles
	activity  *forkActivity
	events    *processEvents
	link      *trainingLink
	upload    *uploads
	secrets   secrets
	telemetry *telemetry

	started  bool // owned by the worker loop
	detached bool // owned by its attempt: the process is not done with the fork yet, and clears up when it is

	ctx    context.Context //nolint:containedctx // the fork's life
	cancel context.CancelCauseFunc
	wake   chan struct{}
	slowed sync.Once // makes sure that the user gets one note that the fork is held up for the disk

	mu     sync.Mutex
	phase  string
	finish bool
	// rejected is the failure that the worker ends the fork with, or nil.
	rejected *failure
}

func newFork(l *workerLoop, as *outbidv1.Assignment) *fork {
	sealed := openSecrets(l.seal, l.cfg.Node, as.GetBody().GetSealedSecrets())
	f := assembleFork(&l.cfg, l.out, as.GetFork(), withKnownWork(as.GetBody()), sealed, func() { l.changed.Store(true) })
	f.disk, f.start, f.bites, f.bitten = l.disk, l.train, l.bites, l.bites()
	return f
}

// assembleFork returns a fork of its parts. changed is called when its status has changed.
func assembleFork(
	cfg *Config, out *outbox, ref *outbidv1.ForkRef, body *outbidv1.AssignmentBody, s secrets, changed func(),
) *fork {
	wake := make(chan struct{}, 1)
	f := &fork{
		cfg: cfg, ref: ref, body: body, secrets: s, changed: changed, wake: wake, phase: "starting",
		orders: &forkOrders{wake: wake, changed: changed}, events: &processEvents{wake: wake}, link: &trainingLink{ref: ref},
		activity: newForkActivity(body.GetStart().GetStep()), telemetry: newTelemetry(cfg, ref, body, s.mask),
		messages: newForkMessages(out, cfg.Node, ref, body, s.mask),
	}
	f.messages.telemetry, f.messages.reject, f.messages.decided = f.telemetry, f.reject, f.link.tellAcked
	f.files = newForkFiles(cfg, ref.GetLeaseId(), f.telemetry)
	f.ctx, f.cancel = context.WithCancelCause(context.Background())
	f.upload = newUploads(f)
	return f
}

func (f *fork) hasEnded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.finish
}

// status returns the fork's status for the uplink, or nil once the fork's end is in the ledger.
func (f *fork) status() *outbidv1.ForkStatus {
	if f.messages.delivered {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &outbidv1.ForkStatus{Fork: f.ref, Version: f.orders.taken(), Phase: f.phase}
}

func (f *fork) setPhase(phase string) {
	f.mu.Lock()
	f.phase = phase
	f.mu.Unlock()
	f.changed()
}

// reject ends the fork with a failure that the worker found, whatever its process does. Reports that come afterwards
// are ignored.
func (f *fork) reject(why *failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rejected == nil {
		f.rejected = why
	}
	poke(f.wake)
}

// rejection returns the failure that the worker found, or nil.
func (f *fork) rejection() *failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rejected
}

// run runs the fork from its start to its end.
func (f *fork) run() {
	f.disk.add(f)
	defer f.disk.remove(f)
	began := time.Now()
	ended := f.live()
	f.telemetry.traceProcess(began, ended)
	f.upload.close()
	if cause := context.Cause(f.ctx); cause != nil && !errors.Is(cause, errUnwanted) {
		ended = f.endedByWorker(cause)
	} else if f.bites != nil && f.bites() != f.bitten {
		ended = f.endedByWorker(errExpired)
	}
	f.cancel(errUnwanted) // releases everything that waits for the fork
	if !f.detached {
		f.files.clear()
	}
	ended.Step, ended.Detail = max(ended.GetStep(), f.activity.lastStep()), sanitize.Line(f.secrets.mask.Text(ended.GetDetail()), limits.Detail)
	f.mu.Lock()
	f.finish, f.phase = true, "ending"
	f.mu.Unlock()
	f.changed()
	f.messages.queueMessage(&outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Ended{Ended: ended}})
}

// endedByWorker returns the end of a fork that the worker itself ended.
func (f *fork) endedByWorker(cause error) *outbidv1.ForkEnded {
	e := &outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_EXPIRED, Detail: cause.Error()}
	if errors.Is(cause, errStopping) {
		e.Outcome = outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED
	}
	return e
}

// failure describes why a fork failed.
type failure struct {
	kind   outbidv1.FailureKind
	detail string
}

// Error implements error.
func (e *failure) Error() string { return e.detail }

func (e *failure) ended() *outbidv1.ForkEnded {
	return &outbidv1.ForkEnded{
		Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, Failure: e.kind, Detail: e.detail,
	}
}

func fail(kind outbidv1.FailureKind, format string, args ...any) *failure {
	return &failure{kind, fmt.Sprintf(format, args...)}
}
