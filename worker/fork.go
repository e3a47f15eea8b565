package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/confine"
	"github.com/outbid-dev/outbid/worker/redact"
	"github.com/outbid-dev/outbid/worker/trialfile"
)

const (
	// stopGrace is how long training code may take to end after the order to stop. Then its process is killed.
	stopGrace = 15 * time.Second
	// pauseGrace is the same for a pause, which has to finish a step and write a checkpoint.
	pauseGrace = 2 * time.Minute
)

// training controls running training code.
type training interface {
	Direct(verdict outbidv1.Verdict, untilStep int64, reason string)
	Acked(seq uint64)
	SaveDone(step int64, failure string)
	ShardDone(done *outbidv1.SaveDone)
	Kill()
}

// detachable is training code in a process that other trials may use. Detach detaches the process from this trial
// before its first step, and over is called when the process is done with the trial. It returns false if the process
// cannot be detached.
type detachable interface {
	Detach(over func()) bool
}

// order is what a fork should do.
type order struct {
	verdict outbidv1.Verdict
	until   int64
	reason  string
}

// same reports whether training code already has the order.
func (o order) same(other order) bool { return o.verdict == other.verdict && o.until == other.until }

// fork is one trial under one lease, from its assignment until its end is in the ledger.
type fork struct {
	cfg     *Config
	out     *outbox
	start   func(ctx context.Context, f *fork) (training, error)
	changed func()
	// bites returns how often the watchdog has ended the worker's trials, and bitten is how often before this fork.
	bites  func() int64
	bitten int64
	disk   *diskWatch
	ref    *outbidv1.ForkRef
	body   *outbidv1.AssignmentBody
	// secrets are environment variables of the training code; mask removes their values from its output and messages.
	// unopened is why they cannot be decrypted, or nil.
	secrets  map[string]string
	mask     *redact.Mask
	unopened error

	// The following fields are owned by the worker loop.
	started   bool
	delivered bool
	acked     uint64

	ctx    context.Context //nolint:containedctx // the fork's life
	cancel context.CancelCauseFunc
	wake   chan struct{}
	upload *uploads
	// heard is when the process last sent anything, in nanoseconds since made.
	heard atomic.Int64
	made  time.Time
	// stalled is set while a report waits for room in the outbox, or for the report rate.
	stalled atomic.Bool
	// waiting is set while rank 0 waits for shards that other processes of its gang store.
	waiting atomic.Bool
	// heldUp is set while the fork runs only part of the time because others wait for the disk that it fills.
	heldUp atomic.Bool
	// incomplete is set once a report was dropped because the fork ended while it waited for room in the outbox. No later report,
	// checkpoint or target counts then: the trial would resume after steps that were never reported.
	incomplete atomic.Bool
	began      sync.Once
	// pace delays its reports; paced makes sure that the user gets one note about it.
	pace     reportPace
	paced    sync.Once
	slowed   sync.Once // makes sure that the user gets one note that the fork is held up for the disk
	detached bool      // owned by its life: the process is not done with the fork yet, and clears up when it is

	mu      sync.Mutex
	version uint64
	order   order
	first   order
	drained bool
	phase   string
	trainer training
	early   []func(training) // calls for the training code, made once its starter has returned
	decided uint64           // the sequence of the last report that the orchestrator decided on
	events  []any
	finish  bool
	in      *confine.Confinement // what the training code runs in, or nil if that is not known yet
	taken   int
	leave   []func() error // functions to call at its end
	step    int64
	trains  bool // whether it has begun its first step
	// rejected is the failure that the worker ends the fork with, or nil.
	rejected *failure
}

// Messages of a training process other than reports, as events.
type (
	savedEvent   struct{ saved *outbidv1.ProcessSaved }
	reachedEvent struct{ step int64 }
	endedEvent   struct{ ended *outbidv1.ForkEnded }
)

func newFork(a *workerLoop, as *outbidv1.Assignment) *fork {
	f := &fork{
		cfg: &a.cfg, disk: a.disk, out: a.out, start: a.train, ref: as.GetFork(), body: withKnownWork(as.GetBody()), wake: make(chan struct{}, 1),
		made: time.Now(), phase: "starting", step: as.GetBody().GetStart().GetStep(),
		changed: func() { a.changed.Store(true) }, bites: a.bites, bitten: a.bites(),
	}
	f.ctx, f.cancel = context.WithCancelCause(context.Background())
	f.upload = newUploads(f)
	f.openSecrets(a.seal)
	return f
}

// name returns the trial's name as users see it.
func (f *fork) name() string { return fmt.Sprintf("%s/%d", f.ref.GetSweep(), f.ref.GetTrial()) }

// direct records what the fork should do from now on. version is 0 if the order does not come from an assignment.
func (f *fork) direct(verdict outbidv1.Verdict, until int64, reason string, version uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if version != 0 {
		if version <= f.version {
			return
		}
		f.version = version
		f.changed()
	}
	if f.drained && verdict == outbidv1.Verdict_VERDICT_TRAIN {
		return
	}
	f.order = order{verdict, until, reason}
	poke(f.wake)
}

// drain pauses the fork for a reason, whatever the orders say, unless it is stopped already.
func (f *fork) drain(why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drained = true
	if f.order.verdict != outbidv1.Verdict_VERDICT_STOP {
		f.order.verdict, f.order.reason = outbidv1.Verdict_VERDICT_PAUSE, why
	}
	poke(f.wake)
}

func (f *fork) ordered() order {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.order
}

func (f *fork) hasEnded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.finish
}

// status returns the fork's status for the uplink, or nil once the fork's end is in the ledger.
func (f *fork) status() *outbidv1.ForkStatus {
	if f.delivered {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &outbidv1.ForkStatus{Fork: f.ref, Version: f.version, Phase: f.phase}
}

func (f *fork) setPhase(phase string) {
	f.mu.Lock()
	f.phase = phase
	f.mu.Unlock()
	f.changed()
}

func (f *fork) tellAcked(seq uint64) {
	f.mu.Lock()
	f.decided = seq
	t := f.trainer
	f.mu.Unlock()
	if t != nil {
		t.Acked(seq)
	}
}

// tellTraining calls what with the training code, or later if its starter has not returned yet: the code may already
// save a checkpoint.
func (f *fork) tellTraining(what func(training)) {
	f.mu.Lock()
	t := f.trainer
	if t == nil {
		f.early = append(f.early, what)
	}
	f.mu.Unlock()
	if t != nil {
		what(t)
	}
}

// queueMessage queues a message for the orchestrator. If the message cannot be sent, the fork fails, unless the
// message is a note.
func (f *fork) queueMessage(m *outbidv1.UplinkMessage) {
	if f.incomplete.Load() && (m.GetSaved() != nil || m.GetReached() != nil) {
		return // the trial resumes from before the reports that are missing
	}
	m.Fork = f.ref
	f.mask.Message(m)
	if err := f.out.add(f, m); err != nil {
		f.failLostMessage(m, fmt.Errorf("it %w", err))
	}
}

// queueAwaited queues a message like queueMessage. The channel is closed once the message is in the ledger, or was
// dropped.
func (f *fork) queueAwaited(m *outbidv1.UplinkMessage) <-chan struct{} {
	dropped := make(chan struct{})
	close(dropped)
	if f.incomplete.Load() {
		return dropped // the trial resumes from before the reports that are missing
	}
	m.Fork = f.ref
	f.mask.Message(m)
	acked, err := f.out.addAwaited(f, m)
	if err != nil {
		f.failLostMessage(m, fmt.Errorf("it %w", err))
		return dropped
	}
	return acked
}

// failLostMessage fails the fork because a message of it cannot be sent.
func (f *fork) failLostMessage(m *outbidv1.UplinkMessage, why error) {
	f.logger().Warn("cannot send a message of a trial", "message", fmt.Sprintf("%T", m.GetKind()), "error", why)
	switch m.GetKind().(type) {
	case *outbidv1.UplinkMessage_Note:
	case *outbidv1.UplinkMessage_Ended:
		_ = f.out.add(f, &outbidv1.UplinkMessage{Fork: f.ref, Kind: lost(m, m.GetEnded().GetStep(), why)}) // cannot fail: short and valid text
	default:
		f.reject(lostFailure(m, why))
	}
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

// note shows the user a line of text.
func (f *fork) note(level, text string) {
	trial := f.ref.GetTrial()
	f.queueMessage(&outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Note{Note: &outbidv1.Note{
		Sweep: f.ref.GetSweep(), Trial: &trial, Node: f.cfg.Node, Level: level, Text: sanitize.Line(f.mask.Text(text), limits.Note),
	}}})
}

// sendBegan queues the message that the training code has its assignment, once, before any other message. It may wait
// for the next message.
func (f *fork) sendBegan() {
	f.began.Do(func() {
		from := f.body.GetStart().GetStep()
		began := &outbidv1.UplinkMessage{
			Fork: f.ref, Kind: &outbidv1.UplinkMessage_Began{Began: &outbidv1.ForkBegan{FromStep: from}},
		}
		if err := f.out.addDelayed(f, began); err != nil {
			f.failLostMessage(began, fmt.Errorf("it %w", err))
		}
	})
}

// target returns the step until which the training code is to run, and records the order that it starts with.
func (f *fork) target() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.first = f.order
	f.first.verdict = outbidv1.Verdict_VERDICT_TRAIN
	return f.first.until
}

// Reports implements session.Trial and program.Trial.
func (f *fork) Reports(reports []*outbidv1.Report) { f.reports(reports, false) }

// LastReports implements session.Trial. The reports are sent together with the fork's end.
func (f *fork) LastReports(reports []*outbidv1.Report) { f.reports(reports, true) }

func (f *fork) reports(reports []*outbidv1.Report, delayed bool) {
	if f.hasEnded() || len(reports) == 0 || f.rejection() != nil || f.incomplete.Load() {
		return
	}
	f.sendBegan()
	f.waiting.Store(false)
	f.touch()
	var bad *failure
	for i, r := range reports {
		f.mask.Report(r)
		if err := checkReport(r); err != nil {
			bad = fail(outbidv1.FailureKind_FAILURE_KIND_ERROR, "the report of step %d %s", r.GetStep(), err)
			reports = reports[:i]
			break
		}
	}
	if len(reports) > 0 {
		f.acceptReports(reports, delayed)
	}
	if bad != nil { // after the reports before it are sent, because it ends the trial
		f.reject(bad)
	}
}

// acceptReports sends valid reports.
func (f *fork) acceptReports(reports []*outbidv1.Report, delayed bool) {
	f.mu.Lock()
	step := reports[len(reports)-1].GetStep()
	f.step, f.trains = max(f.step, step), f.trains || step > f.body.GetStart().GetStep()
	f.mu.Unlock()
	f.stalled.Store(true)
	if !f.send(reports, delayed) {
		f.incomplete.Store(true)
	}
	f.touch()
	f.stalled.Store(false)
}

// Saved implements session.Trial. A checkpoint that is too large fails the trial, because it would be offered again
// and again.
func (f *fork) Saved(s *outbidv1.ProcessSaved) {
	if s.GetShard() != nil && f.body.GetGang() == nil {
		s.Shard.Rank = 0
	}
	if s.GetShard().GetRank() == 0 {
		f.waiting.Store(false)
	}
	taken, err := f.takeFile(s)
	switch {
	case errors.Is(err, trialfile.ErrTooLarge):
		f.reject(fail(outbidv1.FailureKind_FAILURE_KIND_ERROR, "the checkpoint of step %d %s (--checkpoint-bytes of node %s)",
			s.GetStep(), err, f.cfg.Node))
	case err != nil:
		f.answerSave(s, oneLine(err))
	default:
		f.post(savedEvent{taken})
	}
}

// Packed implements program.Trial.
func (f *fork) Packed(s *outbidv1.ProcessSaved) { f.post(savedEvent{s}) }

// Working implements program.Trial.
func (f *fork) Working() { f.touch() }

// Reached implements session.Trial and program.Trial.
func (f *fork) Reached(step int64) {
	f.waiting.Store(false)
	f.post(reachedEvent{step})
}

// Waiting implements session.Trial.
func (f *fork) Waiting() {
	f.touch()
	f.waiting.Store(true)
}

// Began implements session.Trial.
func (f *fork) Began() {
	f.touch()
	f.mu.Lock()
	f.trains = true
	f.mu.Unlock()
}

// Ended implements session.Trial and program.Trial.
func (f *fork) Ended(e *outbidv1.ForkEnded) { f.post(endedEvent{e}) }

// Note implements session.Trial and program.Trial.
func (f *fork) Note(text string) { f.note("warning", text) }

func (f *fork) post(event any) {
	f.sendBegan()
	f.touch()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events, f.trains = append(f.events, event), true
	poke(f.wake)
}

func (f *fork) takeEvents() []any {
	f.mu.Lock()
	defer f.mu.Unlock()
	events := f.events
	f.events = nil
	return events
}

func (f *fork) touch() { f.heard.Store(int64(time.Since(f.made))) }

// silent returns for how long the process has sent nothing.
func (f *fork) silent() time.Duration { return time.Since(f.made) - time.Duration(f.heard.Load()) }

// run runs the fork from its start to its end.
func (f *fork) run() {
	f.disk.add(f)
	defer f.disk.remove(f)
	began := time.Now()
	ended := f.live()
	f.traceProcess(began, ended)
	f.upload.close()
	if cause := context.Cause(f.ctx); cause != nil && !errors.Is(cause, errUnwanted) {
		ended = f.endedByWorker(cause)
	} else if f.bites != nil && f.bites() != f.bitten {
		ended = f.endedByWorker(errExpired)
	}
	f.cancel(errUnwanted) // releases everything that waits for the fork
	if !f.detached {
		f.clear()
	}
	ended.Step, ended.Detail = max(ended.GetStep(), f.lastStep()), sanitize.Line(f.mask.Text(ended.GetDetail()), limits.Detail)
	f.mu.Lock()
	f.finish, f.phase = true, "ending"
	f.mu.Unlock()
	f.changed()
	f.queueMessage(&outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Ended{Ended: ended}})
}

// endedByWorker returns the end of a fork that the worker itself ended.
func (f *fork) endedByWorker(cause error) *outbidv1.ForkEnded {
	e := &outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_EXPIRED, Detail: cause.Error()}
	if errors.Is(cause, errStopping) {
		e.Outcome = outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED
	}
	return e
}

func (f *fork) lastStep() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.step
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
