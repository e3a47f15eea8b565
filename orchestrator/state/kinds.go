package state

import (
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

type event = outbidv1.Event

// Kinds returns the table of events, with one row for each kind. It alone defines what an event means; tests compare
// the table with the messages, and docs/reference/events.md prints it.
func Kinds() []*Kind {
	var all []*Kind
	for _, rows := range [][]*Kind{tenantKinds(), sweepKinds(), trialKinds(), leaseKinds(), ledgerKinds()} {
		all = append(all, rows...)
	}
	return all
}

func tenantKinds() []*Kind {
	return []*Kind{
		newKind(AboutTenant, (*event).GetTenantChanged, ofTenants((*tenancy).tenantChanged), asks, ViewTenants),
		newKind(AboutTenant, (*event).GetTenantRemoved, ofTenants((*tenancy).tenantRemoved), asks, ViewTenants),
	}
}

func sweepKinds() []*Kind {
	return []*Kind{
		newKind(AboutSweep, (*event).GetSweepSubmitted, (*foldContext).submitted,
			sweepLifecycle("submitted"), TunerStarts, asks, advances, outlook, ViewSweep),
		newSweepKind((*event).GetSweepChanged, (*foldContext).sweepChanged,
			sweepLifecycle("pause", "resume", "stop or limit", "tuner done", "trials ended", "tuner failed"), TunerArchives, asks, advances, outlook, ViewWaiting),
		newSweepKind((*event).GetSweepExtended, (*foldContext).sweepExtended,
			sweepLifecycle(Extended), TunerWidens, asks, advances, outlook, ViewWaiting),
		newSweepKind((*event).GetSweepDeleted, (*foldContext).sweepDeleted, sweepLifecycle("deleted"), TunerForgotten, outlook, ReadersForget),
		newSweepKind((*event).GetSweepAnnotated, ofSweep((*Sweep).annotated)),
		newSweepKind((*event).GetSoupPublished, ofSoups((*soups).published)),
		newSweepKind((*event).GetSoupDropped, ofSoups((*soups).dropped)),
		newSweepKind((*event).GetTunerAsked, ofTuner((*tunerStatus).asked), TunerAsked, advances, ViewSweep),
		newSweepKind((*event).GetTunerAnswered, ofTuner((*tunerStatus).answered), TunerAnswers, advances, outlook),
		newSweepKind((*event).GetSweepAnswered, ofSweep((*Sweep).answered), advances, ReadersAside),
	}
}

func trialKinds() []*Kind {
	return []*Kind{
		newTrialKind((*event).GetTrialCreated, (*foldContext).created,
			trialLifecycle("created"), createsTrial, asks, advances, ViewTrial),
		newTrialKind((*event).GetTrialTargeted, (*foldContext).targeted, trialLifecycle(Targeted), asks, advances, ViewTrial),
		newTrialKind((*event).GetTrialPaused, (*foldContext).paused, trialLifecycle(Paused), advances, ViewTrial),
		newTrialKind((*event).GetTrialEnded, (*foldContext).ended,
			trialLifecycle("ended"), newsIf((*event).GetTrialEnded, exitIsNews), asks, advances, outlook, ViewTrial),
		newTrialKind((*event).GetTrialCloned, (*foldContext).cloned, trialLifecycle(Cloned), asks, advances, ViewTrial),
		newTrialKind((*event).GetTrialRetried, (*foldContext).retried,
			sweepLifecycle(Retried), trialLifecycle(Retried), TunerReturns, asks, advances, outlook, ViewTrial),
		// Most events are reports, which alone do not change the demand.
		newTrialKind((*event).GetTrialReported, (*foldContext).reported,
			leaseLifecycle("reported"), newsIf((*event).GetTrialReported, (*foldContext).reportIsNews), ViewTrial,
			seenAt(stepReported), ReadersReport),
		newTrialKind((*event).GetTrialReached, (*foldContext).reached,
			leaseLifecycle(TargetReached), newsIf((*event).GetTrialReached, (*foldContext).targetIsNews), asks, advances, ViewTrial,
			seenAt(stepReached)),
		newTrialKind((*event).GetCheckpointSaved, (*foldContext).checkpointSaved, advances, seenAt(stepSaved)),
		newTrialKind((*event).GetCheckpointDropped, (*foldContext).checkpointDropped, advances),
		newTrialKind((*event).GetShardStored, shardStored),
	}
}

func leaseKinds() []*Kind {
	return []*Kind{
		newTrialKind((*event).GetLeaseGranted, (*foldContext).leaseGranted,
			trialLifecycle("lease granted"), leaseLifecycle("granted"), advances, ViewTrial, orders, decides(aGrant)),
		newTrialKind((*event).GetTrialAsked, (*foldContext).trialAsked,
			trialLifecycle("lease granted"), leaseLifecycle("asked for by a client"), advances, ViewTrial),
		newTrialKind((*event).GetLeaseRenewed, (*foldContext).leaseRenewed, leaseLifecycle("renewed"), advances, ViewTrial, orders,
			decides(aRenewal)),
		newTrialKind((*event).GetLeaseRevoked, (*foldContext).leaseRevoked, leaseLifecycle(Revoked), advances, ViewTrial, orders,
			decides(aRevocation)),
		newTrialKind((*event).GetPlaceEnded, (*foldContext).placeEnded, leaseLifecycle(PlaceEnded), asks, advances, ViewTrial),
		newTrialKind((*event).GetLeaseEnded, (*foldContext).leaseEnded,
			trialLifecycle("lease ended"), leaseLifecycle("ended"), asks, advances, ViewTrial, orders),
		newTrialKind((*event).GetForkStarted, (*foldContext).forkStarted, leaseLifecycle(ProcessStarted), advances, ViewTrial),
		newTrialKind((*event).GetForkFailed, (*foldContext).forkFailed, leaseLifecycle(ProcessFailed), advances, ViewTrial),
		newTrialKind((*event).GetForksBegan, ofSlots((*forkSlots).forksBegan), trialLifecycle("forks begin"), advances, ViewTrial, ReadersAside),
		newTrialKind((*event).GetConsolidationOrdered, ofSlots((*forkSlots).consolidationOrdered),
			trialLifecycle("forks are averaged"), advances, ViewTrial),
		newTrialKind((*event).GetForksEnded, ofSlots((*forkSlots).forksEnded), trialLifecycle("forks are averaged"), asks, advances, ViewTrial),
		newTrialKind((*event).GetMergeJudged, ofSlots((*forkSlots).mergeJudged), trialLifecycle("an average is judged"), asks, advances, ViewTrial),
	}
}

func ledgerKinds() []*Kind {
	return []*Kind{
		newKind(AboutNode, (*event).GetNodeJoined, (*foldContext).nodeJoined, nodeLifecycle(joining, "joined"), asks, ViewNodes),
		newKind(AboutNode, (*event).GetNodeChanged, ofNodes((*nodeIndex).nodeChanged),
			nodeLifecycle(changing, "drained", "opened again", "silent", "seen again", "left"), asks, ViewNodes),
		newKind(AboutNode, (*event).GetNodeFaulted, ofNodes((*nodeIndex).nodeFaulted), nodeLifecycle(faulting, FoundAtFault), asks, ViewNodes),
		newKind(AboutNode, (*event).GetNodeCleared, (*foldContext).nodeCleared, nodeLifecycle(clearing, ClearedOfFault), asks, ViewNodes),
		newKind(AboutNode, (*event).GetUplinkSeen, ofNodes((*nodeIndex).uplinkSeen), nodeLifecycle(uplinkNode, "seen")),
		newKind(AboutLedger, (*event).GetNote, (*foldContext).note, ReadersAside),
		newKind(AboutLedger, (*event).GetDevicePricesChanged, pricesChanged),
		newKind(AboutLedger, (*event).GetRoundBegun, (*foldContext).roundBegun, PolicyBegins),
		newKind(AboutLedger, (*event).GetRoundDecided, (*foldContext).roundDecided, PolicyDecided, ReadersRound),
		newKind(AboutLedger, (*event).GetOrchestratorStarted, (*foldContext).started, PolicyStarts, ReadersLeader),
	}
}

func joining(e *event) string    { return e.GetNodeJoined().GetNode().GetName() }
func changing(e *event) string   { return e.GetNodeChanged().GetNode() }
func faulting(e *event) string   { return e.GetNodeFaulted().GetNode() }
func clearing(e *event) string   { return e.GetNodeCleared().GetNode() }
func uplinkNode(e *event) string { return e.GetUplinkSeen().GetNode() }

// ofTenants returns how an event about a tenant is applied. The functions below are the same for other parts of the
// state.
func ofTenants[M message](fold func(*tenancy, time.Time, M) error) func(*foldContext, M) error {
	return func(f *foldContext, e M) error { return fold(&f.st.tenancy, f.at, e) }
}

func ofNodes[M message](fold func(*nodeIndex, time.Time, M) error) func(*foldContext, M) error {
	return func(f *foldContext, e M) error { return fold(&f.st.nodeIndex, f.at, e) }
}

func ofSweep[M message](fold func(*Sweep, time.Time, M) error) func(*foldContext, M) error {
	return func(f *foldContext, e M) error { return fold(f.sweep, f.at, e) }
}

func ofSoups[M message](fold func(*soups, string, M) error) func(*foldContext, M) error {
	return func(f *foldContext, e M) error { return fold(&f.sweep.soups, f.sweep.ID, e) }
}

func ofTuner[M message](fold func(*tunerStatus, M) error) func(*foldContext, M) error {
	return func(f *foldContext, e M) error { return fold(&f.sweep.tunerStatus, e) }
}

func ofSlots[M message](fold func(*forkSlots, time.Time, *Sweep, *Trial, M) error) func(*foldContext, M) error {
	return func(f *foldContext, e M) error { return fold(&f.st.forkSlots, f.at, f.sweep, f.trial, e) }
}
