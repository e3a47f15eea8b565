package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control/tuning"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/remote"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// saveEvery is the number of questions that a remote tuner answers between two snapshots. The process that takes over
// from it is sent the later questions again.
const saveEvery = 256

// tunerClient sends questions to the remote tuner of one sweep, one after another, in its own goroutine, so that only
// its sweep waits for it. The answers come back as inputs.
type tunerClient struct {
	sweep string
	// ends is cancelled when answers are no longer needed.
	ends   context.Context //nolint:containedctx // the lifetime of the client
	cancel context.CancelFunc
	// given is the number of the newest question in the queue; only the loop uses it.
	given uint64

	mu    sync.Mutex
	queue []remote.Question
	more  chan struct{}
}

// give adds a sweep's open questions to the queue.
func (c *tunerClient) give(open []remote.Question) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range open {
		if q.Number > c.given {
			c.queue, c.given = append(c.queue, q), q.Number
		}
	}
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// next waits for questions and returns at most the given number. It returns several only if each is about one trial.
// It returns nil when the client ends or another tuner needs its place.
func (c *tunerClient) next(wanted <-chan struct{}, most int) []remote.Question {
	for c.ends.Err() == nil {
		if q := c.pop(most); len(q) > 0 {
			return q
		}
		select {
		case <-c.more:
		case <-wanted:
			return nil
		case <-c.ends.Done():
		}
	}
	return nil
}

func (c *tunerClient) pop(most int) []remote.Question {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for ; n < min(most, len(c.queue)); n++ {
		if !ofTrial(c.queue[n].Event) { // an Ask may take long, so send it alone
			n = max(n, 1)
			break
		}
	}
	taken := c.queue[:n:n]
	c.queue = c.queue[n:]
	return taken
}

// ofTrial reports whether an event is about a trial that reported or ended.
func ofTrial(event tuner.Event) bool {
	switch event.(type) {
	case tuner.Reported, tuner.Reached, tuner.Exited:
		return true
	default:
		return false
	}
}

// togetherAtMost and togetherWithin limit a call to a process that answers each question separately: the number of
// questions, and the expected duration.
const (
	togetherAtMost = 64
	togetherWithin = 10 * time.Millisecond
)

// together returns how many questions the next call may hold, from the number and the duration of the last call.
func together(asked int, took time.Duration) int {
	return int(min(togetherAtMost, max(1, togetherWithin*time.Duration(asked)/max(took, 1))))
}

// owns ends a process, and a call to it, when the client ends.
func (c *tunerClient) owns(o *opened) {
	if o != nil {
		context.AfterFunc(c.ends, o.end)
	}
}

// consultRemote ends the clients that are no longer needed, and queues new questions for the others.
func (l *Loop) consultRemote(retire, ask []string) {
	for _, id := range retire {
		if a := l.tunerClients[id]; a != nil {
			a.cancel()
			delete(l.tunerClients, id)
		}
	}
	for _, id := range ask {
		t := l.core.Remote(id)
		if t == nil {
			continue
		}
		if l.tunerClients[id] == nil {
			l.startTunerClient(id, t.Start(), nil)
		}
		l.tunerClients[id].give(t.Open())
	}
}

// startTunerClient starts the client of a remote tuner. If process is nil, it is started when there is a question.
func (l *Loop) startTunerClient(sweep string, start remote.Start, process *opened) {
	a := &tunerClient{sweep: sweep, given: start.Answered, more: make(chan struct{}, 1)}
	a.ends, a.cancel = context.WithCancel(l.leading)
	l.tunerClients[sweep] = a
	go l.ask(a, start, process)
}

// ask sends one question after another until the client or the process ends. While the process has no question, or
// its turn is over, it yields its place to waiting tuners: it ends, and another process continues from its snapshot
// later.
func (l *Loop) ask(a *tunerClient, start remote.Start, o *opened) {
	defer a.cancel()
	defer func() { o.end() }()
	a.owns(o)
	most := 1
	for {
		var wanted <-chan struct{}
		if o != nil {
			wanted = o.place.wanted
			o.place.works(false)
			select {
			case <-wanted: // yield even if there is a question
				l.yieldPlace(a, &start, o)
				o = nil
				continue
			default:
			}
		}
		questions := a.next(wanted, most)
		if a.ends.Err() != nil {
			return
		}
		if len(questions) == 0 {
			continue
		}
		if o == nil {
			var err error
			if o, err = l.startProcess(a, start); err != nil {
				l.answer(a, TunerAnswer{Sweep: a.sweep, Question: questions[0].Number, Err: err})
				return
			}
		}
		o.place.works(true)
		began := time.Now()
		answers := l.sendQuestions(a, o.process, &start, questions)
		most = together(len(questions), time.Since(began))
		for _, in := range answers {
			if l.answer(a, in); in.Err != nil {
				return
			}
		}
	}
}

// eachAnswering is a tuner that accepts several questions at once.
type eachAnswering interface {
	HandleEach(events []tuner.Event) ([]remote.Answer, error)
}

// sendQuestions sends questions to the process, and records in start what a successor of the process must be sent.
func (l *Loop) sendQuestions(a *tunerClient, process tuner.Tuner, start *remote.Start, questions []remote.Question) []TunerAnswer {
	before := len(start.Told) / saveEvery
	answers, err := handleAll(process, questions)
	var out []TunerAnswer
	for i, said := range answers {
		out = append(out, TunerAnswer{
			Sweep: a.sweep, Question: questions[i].Number, Actions: said.Actions, Status: said.Status, Outlook: said.Outlook,
		})
		start.Told = append(start.Told, questions[i])
	}
	if err != nil {
		return append(out, TunerAnswer{Sweep: a.sweep, Question: questions[len(answers)].Number, Err: err})
	}
	if len(start.Told)/saveEvery > before {
		out[len(out)-1].Snapshot = l.save(a, process, start)
	}
	return out
}

// handleAll returns the process's answers to the questions, from a single call if it supports that.
func handleAll(process tuner.Tuner, questions []remote.Question) ([]remote.Answer, error) {
	if several, ok := process.(eachAnswering); ok {
		events := make([]tuner.Event, len(questions))
		for i, q := range questions {
			events[i] = q.Event
		}
		return several.HandleEach(events)
	}
	var answers []remote.Answer
	for _, q := range questions {
		actions, err := process.Handle(q.Event)
		if err != nil {
			return answers, err
		}
		answers = append(answers, remote.Answer{Actions: actions, Status: process.Status(), Outlook: process.Outlook()})
	}
	return answers, nil
}

// yieldPlace ends a process whose place another tuner needs.
func (l *Loop) yieldPlace(a *tunerClient, start *remote.Start, o *opened) {
	if len(start.Told) > 0 {
		l.save(a, o.process, start)
	}
	o.end()
}

// startProcess waits for a place, starts a tuner's process there, and sends it the questions since its snapshot,
// whose answers are already known.
func (l *Loop) startProcess(a *tunerClient, start remote.Start) (*opened, error) {
	o, err := l.open(a.ends, start.Settings, start.Snapshot)
	if err != nil {
		return nil, err
	}
	a.owns(o)
	for _, q := range start.Told {
		if _, err := o.process.Handle(q.Event); err != nil {
			o.end()
			return nil, fmt.Errorf("replaying earlier questions: %w", err)
		}
	}
	return o, nil
}

// save returns a snapshot of the process, or nil if it fails to make one. After a snapshot, earlier questions need
// not be sent again.
func (l *Loop) save(a *tunerClient, process tuner.Tuner, start *remote.Start) []byte {
	data, err := process.Snapshot()
	if err != nil {
		if a.ends.Err() == nil {
			l.cfg.Logger.Warn("could not save a tuner's snapshot; a process that takes over replays all of its questions", "sweep", a.sweep, "err", err)
		}
		return nil
	}
	for _, q := range start.Told {
		if e, extended := q.Event.(tuner.Extended); extended {
			start.Settings = e.Settings
		}
	}
	start.Snapshot, start.Told = data, nil
	return data
}

// answer sends an answer to the loop, unless the client has ended.
func (l *Loop) answer(a *tunerClient, in TunerAnswer) {
	select {
	case <-a.ends.Done():
		return
	default:
	}
	select {
	case l.in <- in:
	case <-a.ends.Done():
	case <-l.done:
	}
}

func closeTuner(t tuner.Tuner) {
	if program, ok := t.(interface{ Close() }); ok {
		program.Close()
	}
}

// endTunerClients ends all clients. It does not wait for processes that are starting.
func (l *Loop) endTunerClients() {
	for _, a := range l.tunerClients {
		a.cancel()
	}
}

// opened is the process of a remote tuner at a place.
type opened struct {
	loop    *Loop
	process tuner.Tuner
	place   *place
}

// open waits for a place and starts a tuner's process there.
func (l *Loop) open(ctx context.Context, settings tuner.Settings, snapshot []byte) (*opened, error) {
	at, err := l.samplers.enter(ctx, state.TenantOf(settings.Spec))
	if err != nil {
		return nil, err
	}
	process, err := l.cfg.Settings.NewTuner(settings, snapshot)
	if err != nil {
		at.leave()
		return nil, err
	}
	return &opened{l, process, at}, nil
}

// end ends the process and leaves its place.
func (o *opened) end() {
	if o != nil {
		closeTuner(o.process)
		o.place.leave()
	}
}

// openPatience is how long a submission waits for a place for its tuner.
const openPatience = 30 * time.Second

// openTuner starts the tuner of a sweep that is being submitted if it is remote. Only the submitting call waits.
func (l *Loop) openTuner(ctx context.Context, spec *outbidv1.SweepSpec) (*opened, error) {
	if !tuning.IsRemote(spec) {
		return nil, nil //nolint:nilnil // most tuners are not programs
	}
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	o, err := l.open(ctx, tuner.Settings{Spec: spec}, nil)
	switch tenant := state.TenantOf(spec); {
	case errors.Is(err, context.DeadlineExceeded) && l.samplers.held(tenant) > 0:
		return nil, &state.LimitError{
			Limit: "samplers", Tenant: tenant, RetryAfter: openPatience,
			Text: fmt.Sprintf("all tuner processes of tenant %s are in use", tenant),
		}
	case err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: tuner: %w", state.ErrInvalid, err)
	}
	return o, nil
}

// status returns the status of the process, or nil if o is nil.
func (o *opened) status() *outbidv1.TunerStatus {
	if o == nil {
		return nil
	}
	s := o.process.Status()
	return &outbidv1.TunerStatus{Waiting: s.Waiting, Exhausted: s.Exhausted, Outlook: o.process.Outlook().Message()}
}

// adopt makes the process the tuner of a sweep that was submitted, or ends it if the sweep has another one or was
// refused. The loop calls it.
func (o *opened) adopt(id string, err error) {
	if o == nil {
		return
	}
	t := o.loop.core.Remote(id)
	if err != nil || t == nil || o.loop.tunerClients[id] != nil || !t.Fresh() {
		go o.end()
		return
	}
	o.loop.startTunerClient(id, t.Start(), o)
}
