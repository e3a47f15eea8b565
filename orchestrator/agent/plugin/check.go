package plugin

import (
	"fmt"
	"math"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// maxGangs bounds the gangs of a row: no sweep runs so many kinds of them at once.
const maxGangs = 64

// longestReason bounds, in bytes, what a plugin may say of why it does not bid.
const longestReason = 200

// answer reads a response. An error says which app's bid cannot be believed, and why.
func answer(
	offer *agent.Offer, situations []*agent.AppState, resp *outbidv1.BidResponse,
) ([]agent.Table, error) {
	if got, want := len(resp.GetTables()), len(situations); got != want {
		return nil, fmt.Errorf("it answered %d tables to %d situations", got, want)
	}
	tables := make([]agent.Table, len(situations))
	for i, m := range resp.GetTables() {
		if said := m.GetRefused(); said != "" {
			tables[i].Refused = "it does not bid: " + oneLine(said)
			continue
		}
		if n := len(m.GetRows()); n > agent.MaxRows {
			return nil, fmt.Errorf("its bid for %s has %d rows, more than %d", situations[i].App, n, agent.MaxRows)
		}
		tables[i] = fromTable(m)
		if err := check(&tables[i], offer, situations[i]); err != nil {
			return nil, fmt.Errorf("its bid for %s %w", situations[i].App, err)
		}
	}
	return tables, nil
}

func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > longestReason {
		text = strings.ToValidUTF8(text[:longestReason], "") + "…"
	}
	return text
}

// check says what is wrong with a table; the error goes on from "its bid for x".
func check(t *agent.Table, offer *agent.Offer, s *agent.AppState) error {
	if !sound(t.Rho) {
		return fmt.Errorf("has rho %v for nothing; it must be finite and above 0", t.Rho)
	}
	if !sound(t.Ideal) {
		return fmt.Errorf("takes %v s alone; that must be finite and above 0", t.Ideal)
	}
	for i, row := range t.Rows {
		if !sound(row.Rho) {
			return fmt.Errorf("has rho %v in row %d; it must be finite and above 0", row.Rho, i)
		}
		if err := checkGangs(row.Gangs, offer, s); err != nil {
			return fmt.Errorf("%w (row %d)", err, i)
		}
	}
	return nil
}

func sound(x float64) bool { return x > 0 && !math.IsInf(x, 0) }

func checkGangs(gangs []agent.Gangs, offer *agent.Offer, s *agent.AppState) error {
	if len(gangs) == 0 || len(gangs) > maxGangs {
		return fmt.Errorf("has %d kinds of gangs; there may be 1 to %d", len(gangs), maxGangs)
	}
	wanted := map[place]int{}
	for _, g := range gangs {
		if err := checkGang(g, offer, s); err != nil {
			return err
		}
		own, all := place{g.Type, g.Node, g.Rack}, place{kind: g.Type}
		wanted[all] += g.Size()
		if own != all {
			wanted[own] += g.Size()
		}
		for _, p := range []place{own, all} {
			if free := p.free(offer, s); wanted[p] > free {
				return fmt.Errorf("wants %d %s, and %d were offered", wanted[p], p, free)
			}
		}
	}
	return nil
}

// A place is where gangs want to be: any machine with devices of a type, one of a rack, or a named one.
type place struct{ kind, node, rack string }

func (p place) String() string { return p.kind + where(p.node, p.rack) }

func (p place) free(offer *agent.Offer, s *agent.AppState) int {
	n := 0
	for i, l := range offer.Lots {
		if matches(l, p.kind, p.node, p.rack) {
			n += freeIn(offer, s, i)
		}
	}
	return n
}

// checkGang looks at one kind of gangs. Two parts of a gang may be on one machine, if it has room for both.
func checkGang(g agent.Gangs, offer *agent.Offer, s *agent.AppState) error {
	if g.Count < 1 || g.Machines < 1 || g.Devices < 1 {
		return fmt.Errorf("has %d gangs of %d machines with %d devices each; all must be 1 or more",
			g.Count, g.Machines, g.Devices)
	}
	if g.Node != "" && g.Machines > 1 {
		return fmt.Errorf("wants %d machines that are all called %s", g.Machines, g.Node)
	}
	room := 0
	for i, l := range offer.Lots {
		if matches(l, g.Type, g.Node, g.Rack) {
			room += freeIn(offer, s, i) / g.Devices
		}
	}
	// Compared by division: a plugin may write any number.
	if room/g.Machines < g.Count {
		return fmt.Errorf("wants %d x %d machines with %d %s each%s, which the offer does not have",
			g.Count, g.Machines, g.Devices, g.Type, where(g.Node, g.Rack))
	}
	return nil
}

func matches(l agent.Lot, kind, node, rack string) bool {
	return l.Type == kind && (node == "" || l.Node == node) && (rack == "" || l.Rack == rack)
}

// freeIn is what an app may use of a lot.
func freeIn(offer *agent.Offer, s *agent.AppState, lot int) int {
	if s.Free == nil {
		return offer.Lots[lot].Free
	}
	return s.Free[lot]
}

func where(node, rack string) string {
	switch {
	case node != "":
		return " on " + node
	case rack != "":
		return " in rack " + rack
	default:
		return ""
	}
}
