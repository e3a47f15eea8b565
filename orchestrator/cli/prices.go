package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// pricesView is the output of `prices -o json`.
type pricesView struct {
	Policy      string                         `json:"policy" doc:"the policy that decides"`
	Time        *time.Time                     `json:"time" doc:"when the prices were set"`
	SlotSeconds number                         `json:"slot_seconds" doc:"length of a slot"`
	Slots       int32                          `json:"slots" doc:"slots that are planned ahead"`
	Sweeps      int32                          `json:"sweeps" doc:"number of sweeps from which the ranges are learnt"`
	Ranges      messages[*outbidv1.PriceRange] `json:"ranges" doc:"resource (device, cpu, gib), low (price of a free slot), high (price of a fully promised slot), per unit and slot"`
	Prices      []slotPriceView                `json:"prices" doc:"type, begins, ends, device, cpu and gib (prices of a unit for a slot), promised (devices), devices"`
}

type slotPriceView struct {
	Type     string     `json:"type"`
	Begins   *time.Time `json:"begins"`
	Ends     *time.Time `json:"ends"`
	Device   number     `json:"device"`
	CPU      number     `json:"cpu"`
	GiB      number     `json:"gib"`
	Promised number     `json:"promised"`
	Devices  int32      `json:"devices"`
}

func (rd *roundCommands) pricesCommand() *cobra.Command {
	var out format
	var kind string
	cmd := &cobra.Command{
		Use:   "prices",
		Short: "Show the prices of devices in the next slots",
		Long: `Prices shows the prices with which a policy with admission (oasis) decides on sweeps: those of a device, a core and a
GiB of memory for a slot, by type of device. They rise from low to high as more of a slot is promised to sweeps; low
and high are learnt from the newest sweeps. Slots with equal prices are one line. Other policies do not have prices.`,
		Example: `  outbid prices
  outbid prices --type v100
  outbid prices -o json | jq '.prices[] | {type, begins, device}'`,
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := rd.connect()
			if err != nil {
				return err
			}
			defer c.close()
			got, err := c.GetPrices(cmd.Context(), &outbidv1.GetPricesRequest{})
			if err != nil {
				return err
			}
			v := viewPrices(got, kind)
			if out != formatTable {
				return rd.printObject(out, v)
			}
			rd.showPrices(v)
			return nil
		},
	}
	outputFlag(cmd, &out)
	cmd.Flags().StringVar(&kind, "type", "", "only devices of this `TYPE`")
	return cmd
}

func viewPrices(got *outbidv1.GetPricesResponse, kind string) pricesView {
	p := got.GetPrices()
	v := pricesView{
		Policy: got.GetPolicy(), Time: viewTime(p.GetTime()), SlotSeconds: number(p.GetSlotSeconds()), Slots: p.GetSlots(), Sweeps: p.GetSweeps(),
		Ranges: p.GetRanges(), Prices: []slotPriceView{},
	}
	for _, s := range p.GetPrices() {
		if kind != "" && s.GetType() != kind {
			continue
		}
		v.Prices = append(v.Prices, slotPriceView{
			s.GetType(), viewTime(s.GetBegins()), viewTime(s.GetEnds()), number(s.GetDevice()), number(s.GetCpu()), number(s.GetGib()),
			number(s.GetPromised()), s.GetDevices(),
		})
	}
	return v
}

func (rd *roundCommands) showPrices(v pricesView) {
	if v.Time == nil {
		rd.printf("policy %s does not have prices; oasis sets them when sweeps arrive\n", v.Policy)
		return
	}
	rd.printf("prices of %s, for a slot of %s, learnt from %s\n", rd.when(v.Time), formatDuration(float64(v.SlotSeconds)), english.Plural(int(v.Sweeps), "sweep", ""))
	var bounds []string
	for _, r := range v.Ranges {
		bounds = append(bounds, fmt.Sprintf("%s %s to %s", r.GetResource(), formatMetric(r.GetLow()), formatMetric(r.GetHigh())))
	}
	rd.printf("%s\n\n", strings.Join(bounds, ", "))
	t := table{width: rd.columns(), header: []string{"TYPE", "FROM", "TO", "PROMISED", "DEVICE", "CPU", "GIB"}, spare: []string{"GIB", "CPU"}}
	for _, p := range v.Prices {
		t.rows = append(t.rows, []string{
			clean(p.Type), rd.when(p.Begins), rd.when(p.Ends), formatMetric(float64(p.Promised)) + "/" + strconv.Itoa(int(p.Devices)),
			formatMetric(float64(p.Device)), formatMetric(float64(p.CPU)), formatMetric(float64(p.GiB)),
		})
	}
	t.write(rd.stdout)
}
