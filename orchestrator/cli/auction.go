package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// roundCommands explain the decisions of policies: rounds, auctions and prices.
type roundCommands struct{ *client }

func (rd *roundCommands) auctionCommand() *cobra.Command {
	var out format
	var list bool
	var sweep string
	var limit int
	cmd := &cobra.Command{
		Use:   "auction [ROUND]",
		Short: "Explain which trials got which devices in a round, and why",
		Long: `Auction explains a round of the policy. Under Themis it shows the devices on offer, the sweeps that were asked, their
bids, the winners and their payments, the leftover devices, and each sweep's finish-time fairness rho before and after.
Under other policies it shows the leases that were granted, renewed and revoked, each with its reason.

ROUND is a number from --list; the default is the newest round that changed an allocation. Rounds of any age are read
from the ledger.`,
		Example: `  outbid auction
  outbid auction 1729
  outbid auction --list --sweep digits-1
  outbid auction -o json | jq '.auction.bidders[] | {sweep, rho, rho_after}'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("unexpected argument %q", args[1])
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			number := uint64(0)
			if len(args) == 1 {
				n, err := strconv.ParseUint(args[0], 10, 64)
				if err != nil || n == 0 {
					return badInput("round %q: want a number from 1; see 'outbid auction --list'", args[0])
				}
				number = n
			}
			switch {
			case limit < 1 || limit > 1000:
				return badInput("--limit %d: want a number from 1 to 1000", limit)
			case sweep != "" && !list:
				return badInput("--sweep goes with --list")
			}
			c, err := rd.connect()
			if err != nil {
				return err
			}
			defer c.close()
			if list {
				return rd.listRounds(cmd, c, out, number, sweep, limit)
			}
			got, err := c.GetRound(cmd.Context(), &outbidv1.GetRoundRequest{Round: number})
			if err != nil {
				return err
			}
			if out != formatTable {
				return rd.printObject(out, viewRound(got.GetRound()))
			}
			rd.showRound(got.GetRound())
			return nil
		},
	}
	outputFlag(cmd, &out)
	cmd.Flags().BoolVar(&list, "list", false, "list rounds, newest first; with ROUND only those before it")
	cmd.Flags().StringVar(&sweep, "sweep", "", "list only rounds in which this `SWEEP` took part")
	cmd.Flags().IntVar(&limit, "limit", 20, "list at most this many")
	return cmd
}

func (rd *roundCommands) listRounds(cmd *cobra.Command, c *connection, out format, before uint64, sweep string, limit int) error {
	if sweep != "" {
		s, err := c.find(cmd.Context(), sweep)
		if err != nil {
			return err
		}
		sweep = s.GetId()
	}
	got, err := c.ListRounds(cmd.Context(), &outbidv1.ListRoundsRequest{Limit: int32(limit), Before: before, Sweep: sweep})
	if err != nil {
		return err
	}
	l := newLister(rd.stdout, out, []string{"ROUND", "TIME", "POLICY", "GRANTED", "RENEWED", "REVOKED", "REASON"},
		func(v roundView) []string {
			count := map[string]int{}
			for _, d := range v.Decisions {
				count[d.Kind]++
			}
			return []string{
				strconv.FormatUint(v.Round, 10), rd.when(v.Time), v.Policy, strconv.Itoa(count["grant"]),
				strconv.Itoa(count["renew"]), strconv.Itoa(count["revoke"]), clean(v.Reason),
			}
		})
	l.table.width, l.table.fold, l.table.spare = rd.columns(), true, []string{"POLICY", "REVOKED", "RENEWED", "GRANTED"}
	for _, r := range got.GetRounds() {
		if err := l.add(viewRound(r)); err != nil {
			return err
		}
	}
	return l.close("the policy has not decided anything yet")
}

// showRound explains a round as text.
func (rd *roundCommands) showRound(r *outbidv1.Round) {
	v := viewRound(r)
	rd.printText("round %d of policy %s at %s: %s", v.Round, v.Policy, rd.when(v.Time), clean(v.Reason))
	if v.Auction != nil {
		rd.showAuction(v.Auction)
	}
	if len(v.Decisions) == 0 {
		rd.printf("\nno lease was granted or revoked\n")
		return
	}
	t := table{
		header: []string{"DID", "TRIAL", "DEVICES", "UNTIL", "REASON"}, width: rd.columns(), fold: true, spare: []string{"UNTIL"},
	}
	for _, d := range v.Decisions {
		trial := "another tenant's"
		if d.Sweep != "" {
			trial = d.Sweep + "/" + strconv.Itoa(int(d.Trial))
		}
		t.rows = append(t.rows, []string{d.Kind, trial, orDash(strings.Join(d.Devices, ", ")), orDash(rd.when(d.TermEnd)), clean(d.Reason)})
	}
	rd.printf("\n")
	t.write(rd.stdout)
}

func (rd *roundCommands) showAuction(v *auctionView) {
	proof := fmt.Sprintf("within %.2g %% of the best", 100*v.Gap)
	if v.Exact {
		proof = "proven to be the best"
	}
	asked := 0
	for _, b := range v.Bidders {
		if b.Asked {
			asked++
		}
	}
	who := fmt.Sprintf("%d of %s", asked, english.Plural(v.Sweeps, "sweep", ""))
	if v.Rule != "" {
		who += ": " + clean(v.Rule)
	}
	rd.printText("on offer: %s", orDash(strings.Join(v.Offered, ", ")))
	rd.printText("asked: %s", who)
	rd.printText("the winner is %s", proof)
	t := table{
		header: []string{"SWEEP", "RHO", "BID", "FAIR SHARE", "KEEPS", "WON", "LEFTOVER", "RHO AFTER", "NOTE"},
		width:  rd.columns(), fold: true, spare: []string{"LEFTOVER", "KEEPS", "FAIR SHARE", "BID"},
	}
	for _, b := range v.Bidders {
		bids, fair, keeps := "-", "-", "-"
		if b.Asked {
			bids = english.Plural(len(b.Bids), "subset", "")
			if b.Fair != nil {
				fair, keeps = strings.Join(b.Fair.Devices, ", "), fmt.Sprintf("%.2f", float64(b.Keeps))
			}
		}
		sweep := b.Sweep
		if sweep == "" {
			sweep = "another tenant's"
		}
		t.rows = append(t.rows, []string{
			sweep, formatRho(float64(b.Rho)), bids, fair, keeps, orDash(strings.Join(b.Won, ", ")),
			orDash(strings.Join(b.Leftover, ", ")), formatRho(float64(b.RhoAfter)), clean(cmp.Or(b.Refused, b.Why)),
		})
	}
	t.write(rd.stdout)
	if more := v.Sweeps - len(v.Bidders); more > 0 {
		rd.printf("and %d more sweeps that were not asked\n", more)
	}
}

func formatRho(rho float64) string { return strconv.FormatFloat(rho, 'f', 2, 64) }

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// roundView is a round as JSON.
type roundView struct {
	Round     uint64         `json:"round" doc:"its number"`
	Time      *time.Time     `json:"time" doc:"when it was decided"`
	Seq       uint64         `json:"seq" doc:"the ledger's batch that contains it"`
	Policy    string         `json:"policy" doc:"policy that decided"`
	Reason    string         `json:"reason" doc:"why, for the round as a whole"`
	Decisions []decisionView `json:"decisions" doc:"its decisions: kind (grant, renew, revoke), sweep, trial, lease_id, devices, term_end, reason"`
	Auction   *auctionView   `json:"auction" doc:"the auction: offered, fairness_knob, rule (who is asked), exact, gap, sweeps, bidders; null without one"`
}

type decisionView struct {
	Kind    string     `json:"kind"`
	Sweep   string     `json:"sweep"`
	Trial   int32      `json:"trial"`
	Lease   uint64     `json:"lease_id"`
	Devices []string   `json:"devices"`
	TermEnd *time.Time `json:"term_end"`
	Reason  string     `json:"reason"`
}

type auctionView struct {
	Offered      []string     `json:"offered"`
	FairnessKnob float64      `json:"fairness_knob"`
	Rule         string       `json:"rule"`
	Exact        bool         `json:"exact"`
	Gap          float64      `json:"gap"`
	Sweeps       int          `json:"sweeps"`
	Bidders      []bidderView `json:"bidders"`
}

type bidderView struct {
	Sweep           string    `json:"sweep"`
	Asked           bool      `json:"asked"`
	Rho             number    `json:"rho"`
	Bids            []bidView `json:"bids"`
	Fair            *bidView  `json:"fair"`
	Keeps           number    `json:"keeps"`
	Won             []string  `json:"won"`
	Leftover        []string  `json:"leftover"`
	Renewed         []string  `json:"renewed"`
	RhoAfter        number    `json:"rho_after"`
	AloneSeconds    number    `json:"alone_seconds"`
	ForecastSeconds number    `json:"forecast_seconds"`
	Refused         string    `json:"refused"`
	Why             string    `json:"why"`
}

type bidView struct {
	Devices []string `json:"devices"`
	Rho     number   `json:"rho"`
}

func viewRound(r *outbidv1.Round) roundView {
	v := roundView{
		Round: r.GetRound(), Time: viewTime(r.GetTime()), Seq: r.GetSeq(), Policy: r.GetPolicy(), Reason: r.GetReason(),
		Decisions: []decisionView{},
	}
	for _, d := range r.GetDecisions() {
		dv := decisionView{
			Kind: d.GetKind(), Sweep: d.GetSweep(), Trial: d.GetTrial(), Lease: d.GetLeaseId(), Reason: d.GetReason(),
			TermEnd: viewTime(d.GetTermEnd()), Devices: []string{},
		}
		for _, p := range d.GetPlaces() {
			dv.Devices = append(dv.Devices, fmt.Sprintf("%s:%s", clean(p.GetNode()), strings.Trim(fmt.Sprint(p.GetDevices()), "[]")))
		}
		v.Decisions = append(v.Decisions, dv)
	}
	if au := r.GetAuction(); au != nil {
		v.Auction = viewAuction(au)
	}
	return v
}

func viewAuction(au *outbidv1.Auction) *auctionView {
	v := &auctionView{
		Offered: lots(au.GetLots()), FairnessKnob: au.GetFairnessKnob(), Rule: au.GetRule(), Exact: au.GetExact(), Sweeps: int(au.GetApps()),
		Gap: max(0, au.GetLogWelfareBound()-au.GetLogWelfare()), Bidders: []bidderView{},
	}
	for _, b := range au.GetBidders() {
		bv := bidderView{
			Sweep: b.GetSweep(), Asked: b.GetAsked(), Rho: number(b.GetRho()), Bids: []bidView{}, Keeps: number(b.GetKeeps()),
			Won: lots(b.GetWon()), Leftover: lots(b.GetLeftover()), Renewed: lots(b.GetRenewed()), RhoAfter: number(b.GetRhoAfter()),
			AloneSeconds: number(b.GetIdealSeconds()), ForecastSeconds: number(b.GetForecastSeconds()), Refused: b.GetRefused(), Why: b.GetWhy(),
		}
		for _, bid := range b.GetBids() {
			bv.Bids = append(bv.Bids, bidView{Devices: bidText(bid), Rho: number(bid.GetRho())})
		}
		if i := int(b.GetFair()); i >= 0 && i < len(bv.Bids) {
			bv.Fair = &bv.Bids[i]
		}
		v.Bidders = append(v.Bidders, bv)
	}
	return v
}

func lots(all []*outbidv1.Lot) []string {
	text := []string{}
	for _, l := range all {
		text = append(text, fmt.Sprintf("%d %s on %s", l.GetDevices(), clean(l.GetType()), clean(l.GetNode())))
	}
	return text
}

func bidText(b *outbidv1.Bid) []string {
	if len(b.GetGangs()) == 0 {
		return lots(b.GetLots())
	}
	text := []string{}
	for _, g := range b.GetGangs() {
		where := "on one machine"
		switch {
		case g.GetNode() != "":
			where = "on " + clean(g.GetNode())
		case g.GetMachines() > 1 && g.GetRack() != "":
			where = fmt.Sprintf("over %d machines of rack %s", g.GetMachines(), clean(g.GetRack()))
		case g.GetMachines() > 1:
			where = fmt.Sprintf("over %d machines", g.GetMachines())
		}
		times := ""
		if g.GetCount() > 1 {
			times = fmt.Sprintf("%d x ", g.GetCount())
		}
		text = append(text, fmt.Sprintf("%s%d %s %s", times, g.GetMachines()*g.GetDevices(), clean(g.GetType()), where))
	}
	return text
}
