package cli

import (
	"fmt"
	"strings"
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
	running bool
}

func viewFaults(faults []*outbidv1.NodeFault, now time.Time) []faultView {
	views := []faultView{}
	for _, o := range faults {
		v := faultView{
			Word: state.FaultWord(o, now), Reason: o.GetReason(), Since: viewTime(o.GetSince()), Until: viewTime(o.GetUntil()),
			Times: o.GetTimes(), Trials: o.GetTrials(), running: state.FaultActive(o, now),
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

// nodeNotes returns the lines below a listing about a node: why it gets no trials, and its worker's warnings.
func (a *app) nodeNotes(n nodeView) []string {
	var lines []string
	for _, o := range n.Faults {
		if o.running {
			lines = append(lines, a.faultLine(n.Name, o))
		}
	}
	for _, w := range n.Warnings {
		lines = append(lines, clean(n.Name)+": "+clean(w))
	}
	return lines
}

// faultLine describes an active fault.
func (a *app) faultLine(node string, o faultView) string {
	who := "gets no new trials"
	if o.Sweep != nil {
		who = "gets no new trials of " + clean(*o.Sweep)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s (%s): %s", clean(node), who, o.Word, clean(o.Reason))
	if len(o.Trials) > 0 {
		fmt.Fprintf(&b, "; failed there: %s", clean(strings.Join(o.Trials, " ")))
	}
	switch {
	case o.Word == "unfit":
		b.WriteString("; it gets trials again when the checks of its worker pass")
	case o.Word == "cordoned":
		fmt.Fprintf(&b, "; it is retried after %s if the checks of its worker pass", a.when(o.Until))
	default:
		fmt.Fprintf(&b, "; it is retried after %s", a.when(o.Until))
	}
	return b.String()
}
