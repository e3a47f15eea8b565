package cli

import (
	"encoding/csv"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/usage"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// usageView is the output of `usage -o json`.
type usageView struct {
	Since    *time.Time     `json:"since" doc:"start of the period; null for the start of the ledger"`
	Until    *time.Time     `json:"until" doc:"end of the period"`
	By       []string       `json:"by" doc:"the columns"`
	Currency string         `json:"currency" doc:"currency of the costs"`
	Rows     []usageRowView `json:"rows" doc:"by column: its value; device_seconds, device_hours, cost (null if a price is not known)"`
	Total    usageRowView   `json:"total" doc:"the sum of the rows"`
}

type usageRowView struct {
	Values        map[string]string `json:"values"`
	DeviceSeconds number            `json:"device_seconds"`
	DeviceHours   number            `json:"device_hours"`
	Cost          *number           `json:"cost"`

	cells []string
}

// usageFlags are the flags of `usage`.
type usageFlags struct {
	since, until, month, prices string
	by                          []string
	out                         string
}

const formatCSV = "csv"

func (tn *tenantCommands) usageCommand() *cobra.Command {
	var o usageFlags
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show device-hours and their cost by tenant, user, device type or label",
		Long: `Usage sums up the time for which leases held devices in a period, and its cost. It is computed from the ledger: a
lease counts from its grant to its end for each of its devices, and a running lease up to now or --until. Deleted
sweeps count too. Users see their tenants, admins all.

A time is a date (2026-11-01, UTC), a time in RFC 3339, or a duration before now (24h, 30d). Prices come from --prices,
or else from the server's file (serve --prices): YAML with currency, and device_hour with a price by device type, where
"*" is any other type. A cost is absent if one of its types has no price.`,
		Example: `  outbid usage --month 2026-11
  outbid usage --since 30d --by tenant,user,type
  outbid usage --month 2026-11 --by tenant,label.project -o csv > november.csv
  outbid usage --prices prices.yaml -o json | jq .total.cost`,
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, currency, err := o.request(tn.now())
			if err != nil {
				return err
			}
			c, err := tn.connect()
			if err != nil {
				return err
			}
			defer c.close()
			got, err := c.GetUsage(cmd.Context(), req)
			if err != nil {
				return err
			}
			if o.prices != "" {
				got.Currency = currency
			}
			return tn.printUsage(o.out, viewUsage(got))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.since, "since", "", "start of the period (default: of the ledger)")
	f.StringVar(&o.until, "until", "", "end of the period (default: now)")
	f.StringVar(&o.month, "month", "", "a calendar month (UTC) such as 2026-11, instead of --since and --until")
	f.StringSliceVar(&o.by, "by", []string{"tenant"}, "columns: tenant, user, type, label.NAME")
	f.StringVar(&o.prices, "prices", "", "YAML `FILE` with prices, instead of the server's")
	f.StringVarP(&o.out, "output", "o", string(formatTable), "table, csv or json")
	_ = cmd.MarkFlagFilename("prices")
	complete(cmd, "by", "tenant", "user", "type")
	complete(cmd, "output", string(formatTable), formatCSV, string(formatJSON))
	return cmd
}

// request checks the flags and returns the request, and the currency of --prices.
func (o *usageFlags) request(now time.Time) (*outbidv1.GetUsageRequest, string, error) {
	if o.out != string(formatTable) && o.out != formatCSV && o.out != string(formatJSON) {
		return nil, "", badInput("--output %q: must be table, csv or json", o.out)
	}
	if err := usage.CheckColumns(o.by); err != nil {
		return nil, "", badInput("--by %w", err)
	}
	since, until, err := o.period(now)
	if err != nil {
		return nil, "", err
	}
	req := &outbidv1.GetUsageRequest{By: o.by}
	if !since.IsZero() {
		req.Since = timestamppb.New(since)
	}
	if !until.IsZero() {
		req.Until = timestamppb.New(until)
	}
	if o.prices == "" {
		return req, "", nil
	}
	data, err := os.ReadFile(o.prices)
	if err != nil {
		return nil, "", badInput("--prices: %w", err)
	}
	p, err := usage.ParsePrices(data)
	if err != nil {
		return nil, "", badInput("--prices %s: %w", o.prices, err)
	}
	if len(p.DeviceHour) == 0 {
		return nil, "", badInput("--prices %s: device_hour: must have at least one price", o.prices)
	}
	req.Prices = p.DeviceHour
	return req, p.Currency, nil
}

func (o *usageFlags) period(now time.Time) (since, until time.Time, err error) {
	if o.month != "" {
		if o.since != "" || o.until != "" {
			return since, until, badInput("--month: must not be given with --since or --until")
		}
		if since, err = time.Parse("2006-01", o.month); err != nil {
			return since, until, badInput("--month %q: must be a year and a month, such as 2026-11", o.month)
		}
		return since, since.AddDate(0, 1, 0), nil
	}
	if since, err = usage.ParseTime(o.since, now); err != nil {
		return since, until, badInput("--since %w", err)
	}
	if until, err = usage.ParseTime(o.until, now); err != nil {
		return since, until, badInput("--until %w", err)
	}
	if !until.IsZero() && !until.After(since) {
		return since, until, badInput("--until %s: must be later than --since", o.until)
	}
	return since, until, nil
}

func viewUsage(got *outbidv1.GetUsageResponse) usageView {
	v := usageView{
		Since: viewTime(got.GetSince()), Until: viewTime(got.GetUntil()), By: got.GetBy(), Currency: got.GetCurrency(),
		Rows: []usageRowView{}, Total: viewUsageRow(got.GetTotal(), nil),
	}
	for _, r := range got.GetRows() {
		v.Rows = append(v.Rows, viewUsageRow(r, got.GetBy()))
	}
	return v
}

func viewUsageRow(r *outbidv1.UsageRow, by []string) usageRowView {
	v := usageRowView{
		Values: map[string]string{}, DeviceSeconds: number(r.GetDeviceSeconds()), DeviceHours: number(r.GetDeviceSeconds() / 3600), cells: r.GetValues(),
	}
	for i, value := range r.GetValues() {
		v.Values[by[i]] = value
	}
	if r.Cost != nil {
		v.Cost = new(number(r.GetCost()))
	}
	return v
}

func (tn *tenantCommands) printUsage(out string, v usageView) error {
	switch out {
	case formatCSV:
		return tn.writeUsage(v)
	case string(formatJSON):
		return tn.printObject(formatJSON, v)
	}
	header := []string{}
	for _, c := range v.By {
		header = append(header, strings.ToUpper(c))
	}
	cost := "COST"
	if v.Currency != "" {
		cost = clean(v.Currency)
	}
	t := table{width: tn.columns(), header: append(header, "DEVICE-HOURS", cost)}
	for i, r := range append(v.Rows, v.Total) {
		cells := make([]string, len(v.By))
		for j := range cells {
			switch {
			case i < len(v.Rows):
				cells[j] = orDash(clean(r.cells[j]))
			case j == 0:
				cells[j] = "total"
			}
		}
		t.rows = append(t.rows, append(cells, fmt.Sprintf("%.2f", float64(r.DeviceHours)), costText(r.Cost, "-")))
	}
	t.write(tn.stdout)
	return nil
}

// costText formats a cost with two decimals.
func costText(cost *number, unknown string) string {
	if cost == nil {
		return unknown
	}
	return fmt.Sprintf("%.2f", float64(*cost))
}

// writeUsage writes the rows as CSV, with full precision and without the total.
func (tn *tenantCommands) writeUsage(v usageView) error {
	w := csv.NewWriter(tn.stdout)
	exact := func(n number) string { return strconv.FormatFloat(float64(n), 'f', -1, 64) }
	_ = w.Write(append(append([]string{}, v.By...), "device_seconds", "device_hours", "cost", "currency"))
	for _, r := range v.Rows {
		cost := ""
		if r.Cost != nil {
			cost = exact(*r.Cost)
		}
		_ = w.Write(append(append([]string{}, r.cells...), exact(r.DeviceSeconds), exact(r.DeviceHours), cost, v.Currency))
	}
	w.Flush()
	return w.Error()
}
