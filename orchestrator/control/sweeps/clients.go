package sweeps

import (
	"fmt"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control/trials"
	"github.com/outbid-dev/outbid/orchestrator/control/tuning"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (sw *Sweeps) external(id string) (*state.Sweep, error) {
	s, err := sw.st.Sweep(id)
	if err != nil {
		return nil, err
	}
	if s.Spec.GetExternal() == nil {
		return nil, fmt.Errorf("%w: sweep %s runs its trials on workers; ask and tell need a sweep with an external workload", state.ErrConflict, id)
	}
	return s, nil
}

// Ask requests a trial for a client of an external sweep. done is called once the sweep's tuner has answered.
func (sw *Sweeps) Ask(sweep, client string, done func(*outbidv1.AskTrialResponse, error)) {
	if !sw.replyAsk(sweep, client, true, done) {
		sw.wait(func() bool { return sw.replyAsk(sweep, client, false, done) })
	}
}

// wait calls reply in each step until it returns true.
func (sw *Sweeps) wait(reply func() bool) { sw.pending = append(sw.pending, reply) }

// Resume replies to commands that waited for a tuner's answer, if that has come.
func (sw *Sweeps) Resume() {
	waiting := sw.pending
	sw.pending = nil
	for _, reply := range waiting {
		if !reply() {
			sw.wait(reply)
		}
	}
}

// replyAsk answers a client and returns true. It returns false while the answer depends on the sweep's tuner, which
// may be asked or has not answered yet.
func (sw *Sweeps) replyAsk(sweep, client string, ask bool, done func(*outbidv1.AskTrialResponse, error)) bool {
	answer, err := sw.askTrial(sweep, client, ask)
	if t := sw.tuning.Remote(sweep); t != nil && t.Asked() && err == nil && answer.GetTrial() == nil && tuning.TakesAnswers(sw.st.Sweeps[sweep]) {
		return false
	}
	sw.core.Reply(func() { done(answer, err) })
	return true
}

// Tell records what a client measured. done is called once the sweep's tuner has decided whether the trial continues.
func (sw *Sweeps) Tell(r *outbidv1.TellTrialRequest, done func(*outbidv1.TellTrialResponse, error)) {
	t, err := sw.tellTrial(r)
	if err != nil {
		sw.core.Reply(func() { done(nil, err) })
		return
	}
	s := sw.st.Sweeps[r.GetSweep()]
	sw.Advance(s)
	reply := func() bool {
		if sw.tuning.Held(s, t) {
			return false // the tuner decides whether the trial continues
		}
		goOn := t.Held(r.GetLeaseId()) != nil && !t.Done()
		answer := &outbidv1.TellTrialResponse{Trial: sw.st.TrialView(s, t), GoOn: goOn}
		sw.core.Reply(func() { done(answer, nil) })
		return true
	}
	if !reply() {
		sw.wait(reply)
	}
}

func (sw *Sweeps) askTrial(sweep, client string, ask bool) (*outbidv1.AskTrialResponse, error) {
	s, err := sw.external(sweep)
	if err != nil {
		return nil, err
	}
	if s.Done() || s.State == outbidv1.SweepState_SWEEP_STATE_STOPPING {
		return &outbidv1.AskTrialResponse{Exhausted: true}, nil
	}
	if s.State != outbidv1.SweepState_SWEEP_STATE_RUNNING {
		return &outbidv1.AskTrialResponse{}, nil
	}
	if t := sw.tuning.Tuner(s.ID); ask && len(s.Queued) == 0 && t != nil && tuning.Room(s) > 0 && !t.Status().Exhausted && !t.Status().Waiting {
		sw.tuning.Ask(s, 1)
	}
	if len(s.Queued) == 0 {
		t := sw.tuning.Tuner(s.ID)
		return &outbidv1.AskTrialResponse{Exhausted: t == nil || t.Status().Exhausted && len(s.Running) == 0}, nil
	}
	t := s.Trials[s.Queued[0]]
	leaseID := sw.st.NextLease
	sw.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_TrialAsked{TrialAsked: &outbidv1.TrialAsked{
		Sweep: s.ID, Trial: t.Number, LeaseId: leaseID, Client: client,
	}}})
	return &outbidv1.AskTrialResponse{Trial: sw.st.TrialView(s, t), LeaseId: leaseID}, nil
}

func (sw *Sweeps) tellTrial(r *outbidv1.TellTrialRequest) (*state.Trial, error) {
	s, err := sw.external(r.GetSweep())
	if err != nil {
		return nil, err
	}
	t, err := s.Trial(r.GetTrial())
	if err != nil {
		return nil, err
	}
	if err := sw.tenants.TooFast(state.TenantOf(s.Spec)); err != nil && len(r.GetReports()) > 0 {
		return nil, err
	}
	l := t.Held(r.GetLeaseId())
	if l == nil {
		return t, nil // the lease was revoked or ended in the meantime: the client must stop
	}
	for _, report := range r.GetReports() {
		if report.GetSeq() == 0 {
			report.Seq = l.LastReportSeq + 1
		}
		sw.trials.Report(s, t, l, report)
	}
	switch {
	case t.Held(l.ID) == nil:
	case r.GetError() != "":
		sw.trials.ForkFailed(s, t, l, "", trials.Failure{Kind: outbidv1.FailureKind_FAILURE_KIND_ERROR, Detail: r.GetError()})
	case t.UntilStep > 0 && t.Step >= t.UntilStep:
		sw.trials.Reached(s, t, l, t.Step)
	case r.GetFinished():
		sw.trials.Finished(s, t, l, "", &outbidv1.ForkEnded{Step: t.Step})
	}
	return t, nil
}

// expireClients takes trials back from clients that did not report in time.
func (sw *Sweeps) expireClients(s *state.Sweep) {
	limit, text := s.Terms.ClientTimeout, s.Spec.GetExternal().GetTimeout()
	if limit == 0 {
		return
	}
	for _, n := range slices.Clone(s.Running) {
		t := s.Trials[n]
		l := t.Lead()
		if last := sw.clientSeen(t, l); sw.core.Now().Sub(last) >= limit {
			sw.core.Note(s.ID, &t.Number, "warning", "client %s sent no report for %s: the trial is given to the next client that asks", l.Client, text)
			sw.trials.EndLease(s, t, l, "its client sent no report for "+text)
		}
	}
}

func (sw *Sweeps) clientSeen(t *state.Trial, l *state.Lease) time.Time {
	seen := l.Granted
	if l.LastReportSeq > 0 && t.Last.GetTime() != nil && t.Last.GetTime().AsTime().After(seen) {
		seen = t.Last.GetTime().AsTime()
	}
	return seen
}
