package worker

import (
	"sync"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
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

// trainingLink passes messages to a fork's training code, which may already report and save before its starter has
// returned.
type trainingLink struct {
	ref *outbidv1.ForkRef

	mu    sync.Mutex
	code  training
	early []func(training) // calls to make once code is known
	acked uint64           // the sequence of the last report that the orchestrator decided on
}

// attach makes the calls that came before the training code was known, and lets later ones through.
func (l *trainingLink) attach(code training) {
	l.mu.Lock()
	l.code = code
	acked, early := l.acked, l.early
	l.early = nil
	l.mu.Unlock()
	if acked > 0 {
		code.Acked(acked)
	}
	for _, what := range early {
		what(code)
	}
}

// tellAcked passes on which report the orchestrator decided on last.
func (l *trainingLink) tellAcked(seq uint64) {
	l.mu.Lock()
	l.acked = seq
	code := l.code
	l.mu.Unlock()
	if code != nil {
		code.Acked(seq)
	}
}

// tell calls what with the training code, now or once it is known.
func (l *trainingLink) tell(what func(training)) {
	l.mu.Lock()
	code := l.code
	if code == nil {
		l.early = append(l.early, what)
	}
	l.mu.Unlock()
	if code != nil {
		what(code)
	}
}

// answerSave answers a file of the training code. An empty failure means that it is stored.
func (l *trainingLink) answerSave(s *outbidv1.ProcessSaved, failure string) {
	l.tell(func(code training) {
		if s.GetShard() != nil {
			code.ShardDone(&outbidv1.SaveDone{Fork: l.ref, Step: s.GetStep(), Error: failure, Shard: s.GetShard()})
			return
		}
		code.SaveDone(s.GetStep(), failure)
	})
}
