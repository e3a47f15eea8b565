package state

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/fork"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// mergesKept bounds the rounds of forks that are kept of a trial once they have ended; the ledger holds them all.
const mergesKept = 8

// merged keeps what became of the trial's round of forks, which ends.
func (f *folding) merged(e *outbidv1.ForksEnded) {
	t, r := f.trial, f.trial.Round
	t.Rounds++
	m := &outbidv1.TrialMerge{
		Round: t.Rounds, Began: stamp(r.Began), Time: stamp(f.at), FromStep: r.From, Step: e.GetStep(), Reason: e.GetReason(),
	}
	if len(e.GetForks()) > 1 {
		m.AveragedOn = r.Node
	}
	for i := range r.Parts {
		part := forkView(r, &r.Parts[i], "ended")
		part.Counted = countedOf(e, part.GetLeaseId())
		m.Forks = append(m.Forks, part)
	}
	kept := t.Merges[max(0, len(t.Merges)+1-mergesKept):]
	t.Merges = append(slices.Clip(slices.Clone(kept)), m) // readers may have what was
}

// countedOf are the steps of a fork that count once its round has ended.
func countedOf(e *outbidv1.ForksEnded, lease uint64) int64 {
	for _, f := range e.GetForks() {
		if f.GetLeaseId() == lease {
			return f.GetSteps()
		}
	}
	return 0
}

// roundView is the trial's round of forks as people see it.
func (t *Trial) roundView() *outbidv1.TrialRound {
	r := t.Round
	v := &outbidv1.TrialRound{FromStep: r.From, Began: stamp(r.Began), Ends: stamp(r.Ends)}
	if t.Consolidating() {
		v.ConsolidatesOn, v.Attempt = r.Node, r.Attempt
	}
	for i := range r.Parts {
		how := "ended"
		if l := t.Held(r.Parts[i].Lease); l != nil {
			how = leaseWord(l.state())
		}
		v.Forks = append(v.Forks, forkView(r, &r.Parts[i], how))
	}
	return v
}

func forkView(r *fork.Round, p *fork.Part, how string) *outbidv1.TrialFork {
	return &outbidv1.TrialFork{
		LeaseId: p.Lease, Places: p.Places, State: how, Share: p.Share, Steps: p.Done, Counted: r.Steps(p),
		StepsPerSecond: p.Rate, ForecastStepsPerSecond: p.Forecast,
	}
}
