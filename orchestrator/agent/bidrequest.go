package agent

import (
	"maps"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// BidRequest is what an agent is asked: an offer, and the apps that it is to bid for.
type BidRequest struct {
	Offer *Offer
	Apps  []*AppState
}

// Notes is an agent that notes what it is asked, and bids for nobody: who wants to know what agents would be asked in a
// round has it decided with Notes. What is noted shares nothing that changes with who asked.
type Notes struct {
	Requests []BidRequest
}

// Bid implements Agent.
func (n *Notes) Bid(o *Offer, apps []*AppState) ([]Table, error) {
	n.Requests = append(n.Requests, BidRequest{o, apps}.clone())
	tables := make([]Table, len(apps))
	for i := range tables {
		tables[i].Refused = "its agent is still to be asked"
	}
	return tables, nil
}

// Answers are what agents answered to requests, by app, and an agent that says so later. By then the offer may be another
// one: of a table it gives the rows that still fit, and who was not asked has no bid.
type Answers map[string]Table

// Ask asks an agent. Where it has no answer, the app's table says why.
func Ask(a Agent, requests []BidRequest) Answers {
	answers := Answers{}
	for _, q := range requests {
		tables, err := a.Bid(q.Offer, q.Apps)
		for i, s := range q.Apps {
			switch {
			case err != nil:
				answers[s.App] = Table{Refused: err.Error()}
			case len(tables) != len(q.Apps):
				answers[s.App] = Table{Refused: "its agent did not answer for every app"}
			default:
				answers[s.App] = tables[i]
			}
		}
	}
	return answers
}

// Bid implements Agent.
func (a Answers) Bid(o *Offer, apps []*AppState) ([]Table, error) {
	tables := make([]Table, len(apps))
	for i, s := range apps {
		t, asked := a[s.App]
		if !asked {
			tables[i].Refused = "its agent was not asked in time: the sweep was not among those to ask when this round began"
			continue
		}
		t.Rows = slices.DeleteFunc(slices.Clone(t.Rows), func(r Row) bool { return o.Check(s, r.Gangs) != nil })
		tables[i] = t
	}
	return tables, nil
}

// clone copies what whoever asked may change or use again. Specs, and what a demand lists, never change.
func (q BidRequest) clone() BidRequest {
	offer := *q.Offer
	offer.Lots = slices.Clone(offer.Lots)
	for i := range offer.Lots {
		offer.Lots[i].Slots = slices.Clone(offer.Lots[i].Slots)
	}
	speeds := map[*cluster.Speeds]*cluster.Speeds{nil: nil} // a model's speeds stay one
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
