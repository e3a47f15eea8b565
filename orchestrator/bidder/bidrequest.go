package bidder

import (
	"maps"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// BidRequest is one question to a bidder: an offer, and the sweeps to bid for.
type BidRequest struct {
	Offer *Offer
	Apps  []*AppState
}

// Notes is a bidder that records requests and does not bid. It is used to find out which requests a round would make.
// Recorded requests do not share mutable data with the caller.
type Notes struct {
	Requests []BidRequest
}

// Bid implements Bidder.
func (n *Notes) Bid(o *Offer, apps []*AppState) ([]Table, error) {
	n.Requests = append(n.Requests, BidRequest{o, apps}.clone())
	tables := make([]Table, len(apps))
	for i := range tables {
		tables[i].Refused = "its bidder has not been asked yet"
	}
	return tables, nil
}

// Answers are bidders' answers to requests, by sweep. As a bidder it returns them later, when the offer may have
// changed: it returns the rows that still fit, and no bid for sweeps that were not asked.
type Answers map[string]Table

// Ask asks a bidder. If the bidder has no answer for a sweep, the sweep's table says why.
func Ask(a Bidder, requests []BidRequest) Answers {
	answers := Answers{}
	for _, q := range requests {
		tables, err := a.Bid(q.Offer, q.Apps)
		for i, s := range q.Apps {
			switch {
			case err != nil:
				answers[s.App] = Table{Refused: err.Error()}
			case len(tables) != len(q.Apps):
				answers[s.App] = Table{Refused: "its bidder did not answer for every sweep"}
			default:
				answers[s.App] = tables[i]
			}
		}
	}
	return answers
}

// Bid implements Bidder.
func (a Answers) Bid(o *Offer, apps []*AppState) ([]Table, error) {
	tables := make([]Table, len(apps))
	for i, s := range apps {
		t, asked := a[s.App]
		if !asked {
			tables[i].Refused = "its bidder was not asked: the sweep did not take part when this round began"
			continue
		}
		t.Rows = slices.DeleteFunc(slices.Clone(t.Rows), func(r Row) bool { return o.Check(s, r.Gangs) != nil })
		tables[i] = t
	}
	return tables, nil
}

// clone copies what the caller may change or reuse. Specs, and the slices of a demand, never change.
func (q BidRequest) clone() BidRequest {
	offer := *q.Offer
	offer.Lots = slices.Clone(offer.Lots)
	for i := range offer.Lots {
		offer.Lots[i].Slots = slices.Clone(offer.Lots[i].Slots)
	}
	speeds := map[*cluster.Speeds]*cluster.Speeds{nil: nil} // each model's speeds are copied once
	model := func(s *cluster.Speeds) *cluster.Speeds {
		c, known := speeds[s]
		if !known {
			c = new(cluster.Speeds)
			*c = *s
			c.Measured, c.Estimated = slices.Clone(s.Measured), maps.Clone(s.Estimated)
			speeds[s] = c
		}
		return c
	}
	apps := make([]*AppState, len(q.Apps))
	for i, s := range q.Apps {
		c := *s
		c.Cluster, c.Free, c.Speeds, c.Jobs = slices.Clone(s.Cluster), slices.Clone(s.Free), model(s.Speeds), slices.Clone(s.Jobs)
		c.Outlook.Rungs = slices.Clone(s.Outlook.Rungs)
		for k := range c.Jobs {
			c.Jobs[k].Speeds = model(c.Jobs[k].Speeds)
		}
		apps[i] = &c
	}
	return BidRequest{&offer, apps}
}
