package cli

import (
	"time"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// faultView is why new trials are not placed on a node.
type faultView struct {
	Word    string     `json:"word"`
	Sweep   *string    `json:"sweep"`
	Reason  string     `json:"reason"`
	Since   *time.Time `json:"since"`
	Until   *time.Time `json:"until"`
	Times   int32      `json:"times"`
	Trials  []string   `json:"trials"`
	Actor   string     `json:"actor"`
	manual  bool
	running bool
}

// by returns the word of a fault, with the administrator if one closed the node.
func (o *faultView) by() string {
	if o.Actor == "" {
		return o.Word
	}
	return o.Word + " by " + clean(o.Actor)
}

func viewFaults(faults []*outbidv1.NodeFault, now time.Time) []faultView {
	views := []faultView{}
	for _, o := range faults {
		v := faultView{
			Word: state.FaultWord(o, now), Reason: o.GetReason(), Since: viewTime(o.GetSince()), Until: viewTime(o.GetUntil()),
			Times: o.GetTimes(), Trials: o.GetTrials(), Actor: o.GetActor(), manual: o.GetManual(), running: state.FaultActive(o, now),
		}
		if o.GetSweep() != "" {
			v.Sweep = new(o.GetSweep())
		}
		if v.Trials == nil {
			v.Trials = []string{}
		}
		views = append(views, v)
	}
	return views
}

// nodeWord returns a node's state in listings: that of its worker, or why it gets no new trials.
func nodeWord(n nodeView) string {
	for _, o := range n.Faults {
		if n.State == "up" && o.Sweep == nil && o.running {
			return o.Word
		}
	}
	return n.State
}
