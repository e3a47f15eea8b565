package worker

import (
	"errors"
	"sync"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/trialfile"
)

// Messages of a training process other than reports, as events.
type (
	savedEvent   struct{ saved *outbidv1.ProcessSaved }
	reachedEvent struct{ step int64 }
	endedEvent   struct{ ended *outbidv1.ForkEnded }
)

// processEvents queues the events of a fork's process until its attempt handles them.
type processEvents struct {
	wake chan struct{} // receives a value when there are events

	mu     sync.Mutex
	events []any
}

func (q *processEvents) put(event any) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.events = append(q.events, event)
	poke(q.wake)
}

func (q *processEvents) takeEvents() []any {
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.events
	q.events = nil
	return events
}

// Reports implements session.Trial and program.Trial.
func (f *fork) Reports(reports []*outbidv1.Report) { f.reports(reports, false) }

// LastReports implements session.Trial. The reports are sent together with the fork's end.
func (f *fork) LastReports(reports []*outbidv1.Report) { f.reports(reports, true) }

func (f *fork) reports(reports []*outbidv1.Report, delayed bool) {
	if f.hasEnded() || len(reports) == 0 || f.rejection() != nil || f.messages.incomplete.Load() {
		return
	}
	f.messages.sendBegan()
	f.activity.waiting.Store(false)
	f.activity.touch()
	var bad *failure
	for i, r := range reports {
		f.secrets.mask.Report(r)
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
	f.activity.reach(reports[len(reports)-1].GetStep())
	f.activity.stalled.Store(true)
	f.messages.sendReports(f.ctx, reports, delayed)
	f.activity.touch()
	f.activity.stalled.Store(false)
}

// Saved implements session.Trial. A checkpoint that is too large fails the trial, because it would be offered again
// and again.
func (f *fork) Saved(s *outbidv1.ProcessSaved) {
	if s.GetShard() != nil && f.body.GetGang() == nil {
		s.Shard.Rank = 0
	}
	if s.GetShard().GetRank() == 0 {
		f.activity.waiting.Store(false)
	}
	taken, err := f.files.takeFile(f.ctx, s)
	switch {
	case errors.Is(err, trialfile.ErrTooLarge):
		f.reject(fail(outbidv1.FailureKind_FAILURE_KIND_ERROR, "the checkpoint of step %d %s (--checkpoint-bytes of node %s)",
			s.GetStep(), err, f.cfg.Node))
	case err != nil:
		f.link.answerSave(s, oneLine(err))
	default:
		f.post(savedEvent{taken})
	}
}

// Packed implements program.Trial.
func (f *fork) Packed(s *outbidv1.ProcessSaved) { f.post(savedEvent{s}) }

// Working implements program.Trial.
func (f *fork) Working() { f.activity.touch() }

// Reached implements session.Trial and program.Trial.
func (f *fork) Reached(step int64) {
	f.activity.waiting.Store(false)
	f.post(reachedEvent{step})
}

// Waiting implements session.Trial.
func (f *fork) Waiting() {
	f.activity.touch()
	f.activity.waiting.Store(true)
}

// Began implements session.Trial.
func (f *fork) Began() {
	f.activity.touch()
	f.activity.begin()
}

// Ended implements session.Trial and program.Trial.
func (f *fork) Ended(e *outbidv1.ForkEnded) { f.post(endedEvent{e}) }

// Note implements session.Trial and program.Trial.
func (f *fork) Note(text string) { f.messages.note("warning", text) }

func (f *fork) post(event any) {
	f.messages.sendBegan()
	f.activity.touch()
	f.activity.begin()
	f.events.put(event)
}
