package state

import outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"

// The methods below are for readers of batches that do not compute a state: see ReaderPart.

// Report returns the report in an event, or nil.
func (t Table) Report(e *outbidv1.Event) *outbidv1.TrialReported {
	body, _ := t.as(e, ReadersReport).(*outbidv1.TrialReported)
	return body
}

// Forgotten returns the sweep whose data is deleted after an event, or "".
func (t Table) Forgotten(e *outbidv1.Event) string {
	if t.as(e, ReadersForget) == nil {
		return ""
	}
	return t.Kind(e).sweep(e)
}

// Round returns the round that an event begins, or nil.
func (t Table) Round(e *outbidv1.Event) *outbidv1.RoundDecided {
	body, _ := t.as(e, ReadersRound).(*outbidv1.RoundDecided)
	return body
}

// Decision returns the decision in an event that follows a round, and whether more may follow. It returns nil and
// true for an event between decisions.
func (t Table) Decision(e *outbidv1.Event) (decided *outbidv1.Decision, more bool) {
	switch k := t.Kind(e); {
	case k == nil:
		return nil, false
	case k.Readers == ReadersDecided:
		return k.decision(e), true
	default:
		return nil, k.Readers == ReadersAside
	}
}

// Leader returns the start of the server that leads from an event on, or nil.
func (t Table) Leader(e *outbidv1.Event) *outbidv1.OrchestratorStarted {
	body, _ := t.as(e, ReadersLeader).(*outbidv1.OrchestratorStarted)
	return body
}

// as returns the body of an event that has a meaning to readers, or nil.
func (t Table) as(e *outbidv1.Event, what ReaderPart) message {
	if k := t.Kind(e); k != nil && k.Readers == what {
		return k.body(e)
	}
	return nil
}

// Kinds of decisions in the API.
const (
	DecisionGrant  = "grant"
	DecisionRenew  = "renew"
	DecisionRevoke = "revoke"
)

func aGrant(e *event) *outbidv1.Decision {
	g := e.GetLeaseGranted()
	return &outbidv1.Decision{
		Kind: DecisionGrant, Sweep: g.GetSweep(), Trial: g.GetTrial(), LeaseId: g.GetLeaseId(), Places: g.GetPlaces(), Reason: g.GetReason(),
		TermEnd: g.GetTermEnd(),
	}
}

func aRenewal(e *event) *outbidv1.Decision {
	r := e.GetLeaseRenewed()
	return &outbidv1.Decision{
		Kind: DecisionRenew, Sweep: r.GetSweep(), Trial: r.GetTrial(), LeaseId: r.GetLeaseId(), Reason: r.GetReason(), TermEnd: r.GetTermEnd(),
	}
}

func aRevocation(e *event) *outbidv1.Decision {
	r := e.GetLeaseRevoked()
	return &outbidv1.Decision{
		Kind: DecisionRevoke, Sweep: r.GetSweep(), Trial: r.GetTrial(), LeaseId: r.GetLeaseId(), Reason: r.GetReason(),
	}
}

func stepReported(e *event) int64 { return e.GetTrialReported().GetReport().GetStep() }
func stepReached(e *event) int64  { return e.GetTrialReached().GetStep() }
func stepSaved(e *event) int64    { return e.GetCheckpointSaved().GetCheckpoint().GetStep() }
