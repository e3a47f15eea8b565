package control

import (
	"context"
	"fmt"
	"sync"

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

// next waits for a question; false if the asker is to end.
func (a *asker) next() (remote.Question, bool) {
	for {
		a.mu.Lock()
		if len(a.queue) > 0 {
			q := a.queue[0]
			a.queue = a.queue[1:]
			a.mu.Unlock()
			return q, a.ends.Err() == nil
		}
		a.mu.Unlock()
		select {
		case <-a.more:
		case <-a.ends.Done():
			return remote.Question{}, false
		}
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

// startAsker asks a process that runs, or one that is started if it is nil.
func (l *Loop) startAsker(sweep string, start remote.Start, process tuner.Tuner) {
	a := &asker{sweep: sweep, given: start.Answered, more: make(chan struct{}, 1)}
	a.ends, a.cancel = context.WithCancel(l.leading)
	l.askers[sweep] = a
	go l.ask(a, start, process)
}

// ask answers one question after another, until the asker ends or the process does.
func (l *Loop) ask(a *asker, start remote.Start, process tuner.Tuner) {
	if process == nil {
		var err error
		if process, err = l.startProcess(start); err != nil {
			if q, more := a.next(); more {
				l.answer(a, TunerAnswer{Sweep: a.sweep, Question: q.Number, Err: err})
			}
			return
		}
	}
	context.AfterFunc(a.ends, func() { closeTuner(process) }) // which also ends a call that is under way
	defer a.cancel()
	since := len(start.Told)
	for {
		q, more := a.next()
		if !more {
			return
		}
		in := TunerAnswer{Sweep: a.sweep, Question: q.Number}
		if in.Actions, in.Err = process.Handle(q.Event); in.Err == nil {
			in.Status, in.Outlook = process.Status(), process.Outlook()
			if since++; since >= saveEvery {
				since, in.Snapshot = 0, l.save(a, process)
			}
		}
		if l.answer(a, in); in.Err != nil {
			return
		}
	}
}

// startProcess starts a tuner's process, and tells it again what it has answered since its snapshot: its answers are known.
func (l *Loop) startProcess(start remote.Start) (tuner.Tuner, error) {
	process, err := l.cfg.Settings.NewTuner(start.Settings, start.Snapshot)
	if err != nil {
		return nil, err
	}
	for _, q := range start.Told {
		if _, err := process.Handle(q.Event); err != nil {
			closeTuner(process)
			return nil, fmt.Errorf("told again what it was told before: %w", err)
		}
	}
	return process, nil
}

// save takes a snapshot of the process; nil if there is none, and then more is told again.
func (l *Loop) save(a *asker, process tuner.Tuner) []byte {
	data, err := process.Snapshot()
	if err != nil {
		if a.ends.Err() == nil {
			l.cfg.Logger.Warn("a tuner gives no snapshot: a server that takes over tells it again all that it was told", "sweep", a.sweep, "err", err)
		}
		return nil
	}
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

// opened is a tuner in a process of its own that was started for a sweep which is being submitted.
type opened struct {
	loop    *Loop
	process tuner.Tuner
}

// openTuner starts the tuner of a sweep that is being submitted if it is a program of its own: nobody but who submits waits.
func (l *Loop) openTuner(spec *outbidv1.SweepSpec) (opened, error) {
	if !isRemote(spec) {
		return opened{}, nil
	}
	process, err := l.cfg.Settings.NewTuner(tuner.Settings{Spec: spec}, nil)
	if err != nil {
		return opened{}, fmt.Errorf("%w: tuner: %w", state.ErrInvalid, err)
	}
	return opened{l, process}, nil
}

// said is what the process says of itself; nil for none.
func (o opened) said() *outbidv1.TunerStatus {
	if o.process == nil {
		return nil
	}
	s := o.process.Status()
	return &outbidv1.TunerStatus{Waiting: s.Waiting, Exhausted: s.Exhausted, Outlook: o.process.Outlook().Message()}
}

// use has the process of a sweep that was submitted asked from now on, or ended if the sweep has another or was refused. It is
// called by the loop.
func (o opened) use(id string, err error) {
	if o.process == nil {
		return
	}
	t := o.loop.core.Remote(id)
	if err != nil || t == nil || o.loop.askers[id] != nil || !t.Fresh() {
		go closeTuner(o.process)
		return
	}
	o.loop.startAsker(id, t.Start(), o.process)
}
