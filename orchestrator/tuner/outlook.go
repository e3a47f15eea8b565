package tuner

import (
	"math"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Message returns the outlook as a protobuf message, the form that the API, snapshots and plugins use.
func (o Outlook) Message() *outbidv1.Outlook {
	m := &outbidv1.Outlook{Trials: int32(min(o.Trials, math.MaxInt32)), Steps: o.Steps}
	for _, r := range o.Rungs {
		m.Rungs = append(m.Rungs, &outbidv1.Rung{
			Bracket: int32(r.Bracket), UntilStep: r.UntilStep, Trials: int32(r.Trials), Steps: r.Steps,
		})
	}
	return m
}

// OutlookOf is the inverse of Outlook.Message.
func OutlookOf(m *outbidv1.Outlook) Outlook {
	o := Outlook{Trials: int(m.GetTrials()), Steps: m.GetSteps()}
	for _, r := range m.GetRungs() {
		o.Rungs = append(o.Rungs, Rung{
			Bracket: int(r.GetBracket()), UntilStep: r.GetUntilStep(), Trials: int(r.GetTrials()), Steps: r.GetSteps(),
		})
	}
	return o
}
