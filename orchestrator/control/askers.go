package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/remote"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// saveEvery is how many questions a tuner in a process of its own answers between two snapshots of it. What it answered since
// is told again to the process that takes over from it.
const saveEvery = 256

// asker asks the tuner of one sweep, which is a program of its own, one question after another, in a goroutine of its own. So
// nothing but its sweep waits for it. Its answers come back as inputs.
type asker struct {
	sweep string
	// ends is cancelled when nobody waits for answers any more.
	ends   context.Context //nolint:containedctx // it is the asker's life
	cancel context.CancelFunc
	// given is the newest question that it was given; the loop's alone.
	given uint64

	mu    sync.Mutex
	queue []remote.Question
	more  chan struct{}
}

// give adds a sweep's open questions to those that are asked.
func (a *asker) give(open []remote.Question) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range open {
		if q.Number > a.given {
			a.queue, a.given = append(a.queue, q), q.Number
		}
	}
	select {
	case a.more <- struct{}{}:
	default:
	}
}

// next waits for questions and takes at most the given number. It takes several only if each concerns one trial. It returns nil when the asker
// ends or its place is wanted.
func (a *asker) next(wanted <-chan struct{}, most int) []remote.Question {
	for a.ends.Err() == nil {
		if q := a.pop(most); len(q) > 0 {
			return q
		}
		select {
		case <-a.more:
		case <-wanted:
			return nil
		case <-a.ends.Done():
		}
	}
	return nil
}

func (a *asker) pop(most int) []remote.Question {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for ; n < min(most, len(a.queue)); n++ {
		if !ofTrial(a.queue[n].Event) { // a draw may take long, so that it is asked alone
			n = max(n, 1)
			break
		}
	}
	taken := a.queue[:n:n]
	a.queue = a.queue[n:]
	return taken
}

// ofTrial says whether an event is of a trial that reported or ended.
func ofTrial(event tuner.Event) bool {
	switch event.(type) {
	case tuner.Reported, tuner.Reached, tuner.Exited:
		return true
	default:
		return false
	}
}

// Bounds of one call to a process that answers each question by itself: the number of questions, and the time that they are expected to take.
const (
	togetherAtMost = 64
	togetherWithin = 10 * time.Millisecond
)

// together returns how many questions the next call may hold, from the number and the duration of the last call.
func together(asked int, took time.Duration) int {
	return int(min(togetherAtMost, max(1, togetherWithin*time.Duration(asked)/max(took, 1))))
}

// owns ends a process when the asker ends, and with it a call that is under way.
func (a *asker) owns(o *opened) {
	if o != nil {
		context.AfterFunc(a.ends, o.end)
	}
}

// consultRemote ends the askers that are no longer needed, and gives the others what their tuners were told.
func (l *Loop) consultRemote(retire, ask []string) {
	for _, id := range retire {
		if a := l.askers[id]; a != nil {
			a.cancel()
			delete(l.askers, id)
		}
	}
	for _, id := range ask {
		t := l.core.Remote(id)
		if t == nil {
			continue
		}
		if l.askers[id] == nil {
			l.startAsker(id, t.Start(), nil)
		}
		l.askers[id].give(t.Open())
	}
}

// startAsker asks a process that runs at a place, or one that is started when there is something to ask if it is nil.
func (l *Loop) startAsker(sweep string, start remote.Start, process *opened) {
	a := &asker{sweep: sweep, given: start.Answered, more: make(chan struct{}, 1)}
	a.ends, a.cancel = context.WithCancel(l.leading)
	l.askers[sweep] = a
	go l.ask(a, start, process)
}

// ask answers one question after another, until the asker ends or the process does. While it has nothing to answer, or its turn
// is over, the process makes room for those that wait for a place: it ends, and another goes on from its snapshot later.
func (l *Loop) ask(a *asker, start remote.Start, o *opened) {
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
			case <-wanted: // whether or not there is a question
				l.rest(a, &start, o)
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
		answers := l.put(a, o.process, &start, questions)
		most = together(len(questions), time.Since(began))
		for _, in := range answers {
			if l.answer(a, in); in.Err != nil {
				return
			}
		}
	}
}

// eachAnswering is a tuner that can be asked several questions at once.
type eachAnswering interface {
	HandleEach(events []tuner.Event) ([]remote.Answer, error)
}

// put asks the process questions, and keeps what another would have to be told.
func (l *Loop) put(a *asker, process tuner.Tuner, start *remote.Start, questions []remote.Question) []TunerAnswer {
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

// handleAll has a process answer questions: all in one call if it can, else one after another.
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

// rest ends a process whose place is wanted.
func (l *Loop) rest(a *asker, start *remote.Start, o *opened) {
	if len(start.Told) > 0 {
		l.save(a, o.process, start)
	}
	o.end()
}

// startProcess waits for a place, starts a tuner's process there, and tells it again what it has answered since its snapshot:
// its answers are known.
func (l *Loop) startProcess(a *asker, start remote.Start) (*opened, error) {
	o, err := l.open(a.ends, start.Settings, start.Snapshot)
	if err != nil {
		return nil, err
	}
	a.owns(o)
	for _, q := range start.Told {
		if _, err := o.process.Handle(q.Event); err != nil {
			o.end()
			return nil, fmt.Errorf("told again what it was told before: %w", err)
		}
	}
	return o, nil
}

// save takes a snapshot of the process, after which it need not be told again what it was told; nil if there is none.
func (l *Loop) save(a *asker, process tuner.Tuner, start *remote.Start) []byte {
	data, err := process.Snapshot()
	if err != nil {
		if a.ends.Err() == nil {
			l.cfg.Logger.Warn("a tuner gives no snapshot: a process that takes over is told again all that it was told", "sweep", a.sweep, "err", err)
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

// answer brings an answer to the loop, unless nobody waits for it any more.
func (l *Loop) answer(a *asker, in TunerAnswer) {
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

// endAskers has no tuner asked any more. It does not wait for those that start.
func (l *Loop) endAskers() {
	for _, a := range l.askers {
		a.cancel()
	}
}

// opened is a tuner in a process of its own that runs at a place.
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

// openPatience is how long who submits a sweep waits for a place for its tuner.
const openPatience = 30 * time.Second

// openTuner starts the tuner of a sweep that is being submitted if it is a program of its own: nobody but who submits waits.
func (l *Loop) openTuner(ctx context.Context, spec *outbidv1.SweepSpec) (*opened, error) {
	if !isRemote(spec) {
		return nil, nil //nolint:nilnil // most tuners are no programs
	}
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	o, err := l.open(ctx, tuner.Settings{Spec: spec}, nil)
	switch tenant := state.TenantOf(spec); {
	case errors.Is(err, context.DeadlineExceeded) && l.samplers.held(tenant) > 0:
		return nil, &state.LimitError{
			Limit: "samplers", Tenant: tenant, RetryAfter: openPatience,
			Text: fmt.Sprintf("all processes that may draw configurations for tenant %s are at work", tenant),
		}
	case err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: tuner: %w", state.ErrInvalid, err)
	}
	return o, nil
}

// said is what the process says of itself; nil for none.
func (o *opened) said() *outbidv1.TunerStatus {
	if o == nil {
		return nil
	}
	s := o.process.Status()
	return &outbidv1.TunerStatus{Waiting: s.Waiting, Exhausted: s.Exhausted, Outlook: o.process.Outlook().Message()}
}

// use has the process of a sweep that was submitted asked from now on, or ended if the sweep has another or was refused. It is
// called by the loop.
func (o *opened) use(id string, err error) {
	if o == nil {
		return
	}
	t := o.loop.core.Remote(id)
	if err != nil || t == nil || o.loop.askers[id] != nil || !t.Fresh() {
		go o.end()
		return
	}
	o.loop.startAsker(id, t.Start(), o)
}
