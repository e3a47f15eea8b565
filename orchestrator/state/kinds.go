package state

import (
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

type event = outbidv1.Event

// Kinds is the table of events: one row for each kind. What an event means stands here and nowhere else; tests hold the
// table against the messages, and docs/reference/events.md prints it.
func Kinds() []*Kind {
	var all []*Kind
	for _, rows := range [][]*Kind{tenantKinds(), sweepKinds(), trialKinds(), leaseKinds(), ledgerKinds()} {
		all = append(all, rows...)
	}
	return all
}

func tenantKinds() []*Kind {
	return []*Kind{
		of(AboutTenant, (*event).GetTenantChanged, (*folding).tenantChanged, asks, ViewTenants),
		of(AboutTenant, (*event).GetTenantRemoved, (*folding).tenantRemoved, asks, ViewTenants),
	}
}

func sweepKinds() []*Kind {
	return []*Kind{
		of(AboutSweep, (*event).GetSweepSubmitted, (*folding).submitted,
			sweepCourse("submitted"), TunerStarts, asks, advances, outlook, ViewSweep),
		ofSweep((*event).GetSweepChanged, (*folding).sweepChanged,
			sweepCourse("pause", "resume", "stop or limit", "tuner done", "trials ended", "tuner failed"), TunerArchives, asks, advances, outlook, ViewWaiting),
		ofSweep((*event).GetSweepExtended, (*folding).sweepExtended,
			sweepCourse(Extended), TunerWidens, asks, advances, outlook, ViewWaiting),
		ofSweep((*event).GetSweepDeleted, (*folding).sweepDeleted, sweepCourse("deleted"), TunerForgotten, outlook, ReadersForget),
		ofSweep((*event).GetSoupPublished, (*folding).soupPublished),
		ofSweep((*event).GetSoupDropped, (*folding).soupDropped),
		ofSweep((*event).GetTunerAsked, (*folding).tunerAsked, TunerAsked, advances, ViewSweep),
		ofSweep((*event).GetTunerAnswered, (*folding).tunerAnswered, TunerAnswers, advances, outlook),
		ofSweep((*event).GetSweepAnswered, (*folding).sweepAnswered, advances, ReadersAside),
	}
}

func trialKinds() []*Kind {
	return []*Kind{
		ofTrial((*event).GetTrialCreated, (*folding).created,
			trialCourse("created"), createsTrial, asks, advances, ViewTrial),
		ofTrial((*event).GetTrialTargeted, (*folding).targeted, trialCourse(Targeted), asks, advances, ViewTrial),
		ofTrial((*event).GetTrialPaused, (*folding).paused, trialCourse(Paused), advances, ViewTrial),
		ofTrial((*event).GetTrialEnded, (*folding).ended,
			trialCourse("ended"), newsIf((*event).GetTrialEnded, (*folding).exitIsNews), asks, advances, outlook, ViewTrial),
		ofTrial((*event).GetTrialCloned, (*folding).cloned, trialCourse(Cloned), asks, advances, ViewTrial),
		// By far the most events are reports, and alone they change nobody's demand.
		ofTrial((*event).GetTrialReported, (*folding).reported,
			leaseCourse("reported"), newsIf((*event).GetTrialReported, (*folding).reportIsNews), ViewTrial,
			seenAt(stepReported), ReadersReport),
		ofTrial((*event).GetTrialReached, (*folding).reached,
			leaseCourse(TargetReached), newsIf((*event).GetTrialReached, (*folding).targetIsNews), asks, advances, ViewTrial,
			seenAt(stepReached)),
		ofTrial((*event).GetCheckpointSaved, (*folding).checkpointSaved, advances, seenAt(stepSaved)),
		ofTrial((*event).GetCheckpointDropped, (*folding).checkpointDropped, advances),
	}
}

func leaseKinds() []*Kind {
	return []*Kind{
		ofTrial((*event).GetLeaseGranted, (*folding).leaseGranted,
			trialCourse("lease granted"), leaseCourse("granted"), advances, ViewTrial, orders, decides(aGrant)),
		ofTrial((*event).GetTrialAsked, (*folding).trialAsked,
			trialCourse("lease granted"), leaseCourse("asked for by a client"), advances, ViewTrial),
		ofTrial((*event).GetLeaseRenewed, (*folding).leaseRenewed, leaseCourse("renewed"), advances, ViewTrial, orders,
			decides(aRenewal)),
		ofTrial((*event).GetLeaseRevoked, (*folding).leaseRevoked, leaseCourse("revoked"), advances, ViewTrial, orders,
			decides(aRevocation)),
		ofTrial((*event).GetPlaceEnded, (*folding).placeEnded, leaseCourse(PlaceEnded), asks, advances, ViewTrial),
		ofTrial((*event).GetLeaseEnded, (*folding).leaseEnded,
			trialCourse("lease ended"), leaseCourse("ended"), asks, advances, ViewTrial, orders),
		ofTrial((*event).GetForkStarted, (*folding).forkStarted, leaseCourse(ProcessStarted), advances, ViewTrial),
		ofTrial((*event).GetForkFailed, (*folding).forkFailed, leaseCourse(ProcessFailed), advances, ViewTrial),
		ofTrial((*event).GetForksBegan, (*folding).forksBegan, trialCourse("forks begin"), advances, ViewTrial, ReadersAside),
		ofTrial((*event).GetConsolidationOrdered, (*folding).consolidationOrdered,
			trialCourse("forks are consolidated"), advances, ViewTrial),
		ofTrial((*event).GetForksEnded, (*folding).forksEnded, trialCourse("forks are consolidated"), asks, advances, ViewTrial),
		ofTrial((*event).GetMergeJudged, (*folding).mergeJudged, trialCourse("an average is judged"), asks, advances, ViewTrial),
	}
}

func ledgerKinds() []*Kind {
	return []*Kind{
		of(AboutNode, (*event).GetNodeJoined, (*folding).nodeJoined, nodeCourse(joining, "joined"), asks, ViewNodes),
		of(AboutNode, (*event).GetNodeChanged, (*folding).nodeChanged,
			nodeCourse(changing, "drained", "opened again", "silent", "heard of again", "said goodbye"), asks, ViewNodes),
		of(AboutNode, (*event).GetNodeFaulted, (*folding).nodeFaulted, nodeCourse(faulting, FoundAtFault), asks, ViewNodes),
		of(AboutNode, (*event).GetNodeCleared, (*folding).nodeCleared, nodeCourse(clearing, ClearedOfFault), asks, ViewNodes),
		of(AboutNode, (*event).GetUplinkSeen, (*folding).uplinkSeen, nodeCourse(heardOf, "heard of")),
		of(AboutLedger, (*event).GetNote, (*folding).note, ReadersAside),
		of(AboutLedger, (*event).GetRoundBegun, (*folding).roundBegun, PolicyBegins),
		of(AboutLedger, (*event).GetRoundDecided, (*folding).roundDecided, PolicyDecided, ReadersRound),
		of(AboutLedger, (*event).GetOrchestratorStarted, (*folding).started, TunerRecorded, PolicyStarts, ReadersLeader),
	}
}

func joining(e *event) string  { return e.GetNodeJoined().GetNode().GetName() }
func changing(e *event) string { return e.GetNodeChanged().GetNode() }
func faulting(e *event) string { return e.GetNodeFaulted().GetNode() }
func clearing(e *event) string { return e.GetNodeCleared().GetNode() }
func heardOf(e *event) string  { return e.GetUplinkSeen().GetNode() }
