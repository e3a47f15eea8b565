package worker

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/redact"
)

// forkMessages sends a fork's messages to the orchestrator, without the values of its secrets.
type forkMessages struct {
	out *outbox
	ref *outbidv1.ForkRef
	// node, tenant and the step from which the fork starts appear in messages.
	node, tenant string
	from         int64
	mask         *redact.Mask
	telemetry    *telemetry
	// reject ends the fork with a failure, and decided is called with the last report that the orchestrator decided on.
	reject  func(*failure)
	decided func(seq uint64)

	// incomplete is set once a report was dropped because the fork ended while it waited for room in the outbox. No later report,
	// checkpoint or target counts then: the trial would resume after steps that were never reported.
	incomplete atomic.Bool
	began      sync.Once
	// pace delays the reports; paced makes sure that the user gets one note about it.
	pace  reportPace
	paced sync.Once

	// The following fields are owned by the worker loop.
	acked     uint64 // the newest report of the acknowledged messages, until it is passed on
	delivered bool   // whether the fork's end is in the ledger
}

func newForkMessages(out *outbox, node string, ref *outbidv1.ForkRef, body *outbidv1.AssignmentBody, mask *redact.Mask) *forkMessages {
	return &forkMessages{
		out: out, ref: ref, node: node, tenant: cmp.Or(body.GetTenant(), "default"), from: body.GetStart().GetStep(), mask: mask,
	}
}

// queueMessage queues a message for the orchestrator. If the message cannot be sent, the fork fails, unless the
// message is a note.
func (s *forkMessages) queueMessage(m *outbidv1.UplinkMessage) {
	if s.incomplete.Load() && (m.GetSaved() != nil || m.GetReached() != nil) {
		return // the trial resumes from before the reports that are missing
	}
	m.Fork = s.ref
	s.mask.Message(m)
	if err := s.out.add(s, m); err != nil {
		s.failLostMessage(m, fmt.Errorf("it %w", err))
	}
}

// queueAwaited queues a message like queueMessage. The channel is closed once the message is in the ledger, or was
// dropped.
func (s *forkMessages) queueAwaited(m *outbidv1.UplinkMessage) <-chan struct{} {
	dropped := make(chan struct{})
	close(dropped)
	if s.incomplete.Load() {
		return dropped // the trial resumes from before the reports that are missing
	}
	m.Fork = s.ref
	s.mask.Message(m)
	acked, err := s.out.addAwaited(s, m)
	if err != nil {
		s.failLostMessage(m, fmt.Errorf("it %w", err))
		return dropped
	}
	return acked
}

// failLostMessage fails the fork because a message of it cannot be sent.
func (s *forkMessages) failLostMessage(m *outbidv1.UplinkMessage, why error) {
	s.telemetry.logger().Warn("cannot send a message of a trial", "message", fmt.Sprintf("%T", m.GetKind()), "error", why)
	switch m.GetKind().(type) {
	case *outbidv1.UplinkMessage_Note:
	case *outbidv1.UplinkMessage_Ended:
		_ = s.out.add(s, &outbidv1.UplinkMessage{Fork: s.ref, Kind: lost(m, m.GetEnded().GetStep(), why)}) // cannot fail: short and valid text
	default:
		s.reject(lostFailure(m, why))
	}
}

// note shows the user a line of text.
func (s *forkMessages) note(level, text string) {
	trial := s.ref.GetTrial()
	s.queueMessage(&outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Note{Note: &outbidv1.Note{
		Sweep: s.ref.GetSweep(), Trial: &trial, Node: s.node, Level: level, Text: sanitize.Line(s.mask.Text(text), limits.Note),
	}}})
}

// sendBegan queues the message that the training code has its assignment, once, before any other message. It may wait
// for the next message.
func (s *forkMessages) sendBegan() {
	s.began.Do(func() {
		began := &outbidv1.UplinkMessage{
			Fork: s.ref, Kind: &outbidv1.UplinkMessage_Began{Began: &outbidv1.ForkBegan{FromStep: s.from}},
		}
		if err := s.out.addDelayed(s, began); err != nil {
			s.failLostMessage(began, fmt.Errorf("it %w", err))
		}
	})
}

// sendReports queues reports as fast as the fork may report. The training code waits meanwhile. If ctx ends before all
// were queued, the fork's messages are incomplete.
func (s *forkMessages) sendReports(ctx context.Context, reports []*outbidv1.Report, delayed bool) {
	for len(reports) > 0 {
		n := s.pace.await(ctx, reports, s.notePace)
		if n == 0 || !s.out.addReports(ctx, s, reports[:n], delayed && n == len(reports)) {
			s.incomplete.Store(true)
			return
		}
		reports = reports[n:]
	}
}

// notePace tells the user once that the reports of the fork are delayed.
func (s *forkMessages) notePace(rate float64) {
	s.paced.Do(func() {
		s.note("warning", fmt.Sprintf("%s waits when it reports: the trials of tenant %s exceed their sustained rate of reports in bytes a second "+
			"(report_rate), so this one may report %.0f a second; report less often to run at full speed", trialName(s.ref), s.tenant, max(rate, 1)))
	})
}

// trialName returns the name of a fork's trial as users see it.
func trialName(ref *outbidv1.ForkRef) string {
	return fmt.Sprintf("%s/%d", ref.GetSweep(), ref.GetTrial())
}
