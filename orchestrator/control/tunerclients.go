package control

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/remote"
)

// tunerClients are the clients of remote tuners. Only the loop's goroutine starts and ends clients.
type tunerClients struct {
	clients map[string]*tunerClient // by sweep
	// samplers limits the processes.
	samplers *samplers
	queue    *queue
	// newTuner makes a tuner from its sweep's settings, and from a snapshot unless that is nil.
	newTuner func(settings tuner.Settings, snapshot []byte) (tuner.Tuner, error)
	// remote returns the tuner of a sweep if it is remote, or nil.
	remote func(sweep string) *remote.Tuner
	logger *slog.Logger
}

// consult ends the clients that are no longer needed, and queues new questions for the others.
func (t *tunerClients) consult(retire, ask []string) {
	for _, id := range retire {
		if a := t.clients[id]; a != nil {
			a.cancel()
			delete(t.clients, id)
		}
	}
	for _, id := range ask {
		of := t.remote(id)
		if of == nil {
			continue
		}
		if t.clients[id] == nil {
			t.startClient(id, of.Start(), nil)
		}
		t.clients[id].give(of.Open())
	}
}

// startClient starts the client of a remote tuner. If process is nil, it is started when there is a question.
func (t *tunerClients) startClient(sweep string, start remote.Start, process *opened) {
	a := &tunerClient{sweep: sweep, given: start.Answered, more: make(chan struct{}, 1)}
	a.ends, a.cancel = context.WithCancel(t.queue.leading)
	t.clients[sweep] = a
	go t.ask(a, start, process)
}

// ask sends one question after another until the client or the process ends. While the process has no question, or
// its turn is over, it yields its place to waiting tuners: it ends, and another process continues from its snapshot
// later.
func (t *tunerClients) ask(a *tunerClient, start remote.Start, o *opened) {
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
				t.yieldPlace(a, &start, o)
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
			if o, err = t.startProcess(a, start); err != nil {
				t.answer(a, TunerAnswer{Sweep: a.sweep, Question: questions[0].Number, Err: err})
				return
			}
		}
		o.place.works(true)
		began := time.Now()
		answers := t.sendQuestions(a, o.process, &start, questions)
		most = together(len(questions), time.Since(began))
		for _, in := range answers {
			if t.answer(a, in); in.Err != nil {
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
func (t *tunerClients) sendQuestions(a *tunerClient, process tuner.Tuner, start *remote.Start, questions []remote.Question) []TunerAnswer {
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
		out[len(out)-1].Snapshot = t.save(a, process, start)
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
func (t *tunerClients) yieldPlace(a *tunerClient, start *remote.Start, o *opened) {
	if len(start.Told) > 0 {
		t.save(a, o.process, start)
	}
	o.end()
}

// startProcess waits for a place, starts a tuner's process there, and sends it the questions since its snapshot,
// whose answers are already known.
func (t *tunerClients) startProcess(a *tunerClient, start remote.Start) (*opened, error) {
	o, err := t.open(a.ends, start.Settings, start.Snapshot)
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
func (t *tunerClients) save(a *tunerClient, process tuner.Tuner, start *remote.Start) []byte {
	data, err := process.Snapshot()
	if err != nil {
		if a.ends.Err() == nil {
			t.logger.Warn("could not save a tuner's snapshot; a process that takes over replays all of its questions", "sweep", a.sweep, "err", err)
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
func (t *tunerClients) answer(a *tunerClient, in TunerAnswer) {
	select {
	case <-a.ends.Done():
		return
	default:
	}
	_ = t.queue.send(a.ends, in)
}

func closeTuner(process tuner.Tuner) {
	if program, ok := process.(interface{ Close() }); ok {
		program.Close()
	}
}

// end ends all clients. It does not wait for processes that are starting.
func (t *tunerClients) end() {
	for _, a := range t.clients {
		a.cancel()
	}
}
