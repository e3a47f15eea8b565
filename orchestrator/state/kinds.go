package state

import (
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

type event = outbidv1.Event

// Kinds is the table of events: one row for each kind. What an event means stands here and nowhere else; tests hold the
// table against the messages, and docs/architecture.md prints it.
func Kinds() []*Kind {
	var all []*Kind
	for _, rows := range [][]*Kind{sweepKinds(), trialKinds(), leaseKinds(), ledgerKinds()} {
		all = append(all, rows...)
	}
	return all
}

func sweepKinds() []*Kind {
	return []*Kind{
		of(AboutSweep, (*event).GetSweepSubmitted, (*folding).submitted, TunerStarts, asks, advances, ViewSweep),
		ofSweep((*event).GetSweepChanged, (*folding).sweepChanged, TunerRests, asks, advances, ViewWaiting),
		ofSweep((*event).GetSweepExtended, (*folding).sweepExtended, TunerWidens, asks, advances, ViewWaiting),
		ofSweep((*event).GetSweepDeleted, (*folding).sweepDeleted, TunerForgotten),
		ofSweep((*event).GetTunerAsked, (*folding).tunerAsked, TunerAsked, advances, ViewSweep),
	}
}

func trialKinds() []*Kind {
	return []*Kind{
		ofTrial((*event).GetTrialCreated, (*folding).created, createsTrial, asks, advances, ViewTrial),
		ofTrial((*event).GetTrialTargeted, (*folding).targeted, asks, advances, ViewTrial),
		ofTrial((*event).GetTrialPaused, (*folding).paused, advances, ViewTrial),
		ofTrial((*event).GetTrialEnded, (*folding).ended, newsIf((*event).GetTrialEnded, (*folding).exitIsNews), asks, advances, ViewTrial),
		ofTrial((*event).GetTrialCloned, (*folding).cloned, asks, advances, ViewTrial),
		// By far the most events are reports, and alone they change nobody's demand.
		ofTrial((*event).GetTrialReported, (*folding).reported, newsIf((*event).GetTrialReported, (*folding).reportIsNews), ViewTrial),
		ofTrial((*event).GetTrialReached, (*folding).reached, TunerHears, asks, advances, ViewTrial),
		ofTrial((*event).GetCheckpointSaved, (*folding).checkpointSaved, advances),
		ofTrial((*event).GetCheckpointDropped, (*folding).checkpointDropped, advances),
	}
}

func leaseKinds() []*Kind {
	return []*Kind{
		ofTrial((*event).GetLeaseGranted, (*folding).leaseGranted, advances, ViewTrial, orders),
		ofTrial((*event).GetTrialAsked, (*folding).trialAsked, advances, ViewTrial),
		ofTrial((*event).GetLeaseRenewed, (*folding).leaseRenewed, advances, ViewTrial, orders),
		ofTrial((*event).GetLeaseRevoked, (*folding).leaseRevoked, advances, ViewTrial, orders),
		ofTrial((*event).GetPlaceEnded, (*folding).placeEnded, asks, advances, ViewTrial),
		ofTrial((*event).GetLeaseEnded, (*folding).leaseEnded, asks, advances, ViewTrial, orders),
		ofTrial((*event).GetForkStarted, (*folding).forkStarted, advances, ViewTrial),
		ofTrial((*event).GetForkFailed, (*folding).forkFailed, advances, ViewTrial),
	}
}

func ledgerKinds() []*Kind {
	return []*Kind{
		of(AboutNode, (*event).GetNodeJoined, (*folding).nodeJoined, asks, ViewNodes),
		of(AboutNode, (*event).GetNodeChanged, (*folding).nodeChanged, asks, ViewNodes),
		of(AboutNode, (*event).GetUplinkSeen, (*folding).uplinkSeen),
		of(AboutLedger, (*event).GetNote, (*folding).note),
		of(AboutLedger, (*event).GetRoundDecided, (*folding).roundDecided, PolicyDecided),
		of(AboutLedger, (*event).GetOrchestratorStarted, (*folding).started, PolicyStarts),
	}
}
