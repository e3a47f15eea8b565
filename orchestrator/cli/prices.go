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
	Policy      string           `json:"policy" doc:"the policy that decides"`
	Time        *time.Time       `json:"time" doc:"when the prices were set"`
	SlotSeconds number           `json:"slot_seconds" doc:"length of a slot"`
	Slots       int32            `json:"slots" doc:"slots that are planned ahead"`
	Sweeps      int32            `json:"sweeps" doc:"number of sweeps from which the ranges are learnt"`
	Ranges      []priceRangeView `json:"ranges" doc:"resource (device, cpu, gib), low (price of a free slot), high (price of a fully promised slot), per unit and slot"`
	Prices      []slotPriceView  `json:"prices" doc:"type, begins, ends, device, cpu and gib (prices of a unit for a slot), promised (devices), devices"`
}

type priceRangeView struct {
	Resource string `json:"resource"`
	Low      number `json:"low"`
	High     number `json:"high"`
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

func (a *app) pricesCommand() *cobra.Command {
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
			c, err := a.connect()
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
				return a.printObject(out, v)
			}
			a.showPrices(v)
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
		Ranges: []priceRangeView{}, Prices: []slotPriceView{},
	}
	for _, r := range p.GetRanges() {
		v.Ranges = append(v.Ranges, priceRangeView{r.GetResource(), number(r.GetLow()), number(r.GetHigh())})
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

func (a *app) showPrices(v pricesView) {
	if v.Time == nil {
		a.printf("policy %s does not have prices; oasis sets them when sweeps arrive\n", v.Policy)
		return
	}
	a.printf("prices of %s, for a slot of %s, learnt from %s\n", a.when(v.Time), formatDuration(float64(v.SlotSeconds)), english.Plural(int(v.Sweeps), "sweep", ""))
	var bounds []string
	for _, r := range v.Ranges {
		bounds = append(bounds, fmt.Sprintf("%s %s to %s", r.Resource, formatMetric(float64(r.Low)), formatMetric(float64(r.High))))
	}
	a.printf("%s\n\n", strings.Join(bounds, ", "))
	t := table{width: a.columns(), header: []string{"TYPE", "FROM", "TO", "PROMISED", "DEVICE", "CPU", "GIB"}, spare: []string{"GIB", "CPU"}}
	for _, p := range v.Prices {
		t.rows = append(t.rows, []string{
			clean(p.Type), a.when(p.Begins), a.when(p.Ends), formatMetric(float64(p.Promised)) + "/" + strconv.Itoa(int(p.Devices)),
			formatMetric(float64(p.Device)), formatMetric(float64(p.CPU)), formatMetric(float64(p.GiB)),
		})
	}
	t.write(a.stdout)
}

func admissionKind(k outbidv1.AdmissionKind) string {
	return strings.ToLower(strings.TrimPrefix(k.String(), "ADMISSION_KIND_"))
}

func viewAdmission(a *outbidv1.Admission) *admissionView {
	if a == nil {
		return nil
	}
	v := &admissionView{
		Kind: admissionKind(a.GetKind()), Text: a.GetText(), Least: a.GetLeast(), Most: a.GetMost(), WorkerDevices: a.GetWorkerDevices(),
		Begins: viewTime(a.GetBegins()), Ends: viewTime(a.GetEnds()), Promised: viewTime(a.GetPromised()), Worth: number(a.GetWorth()),
		Cost: number(a.GetCost()), Again: viewTime(a.GetAgain()), Schedule: []workersView{},
	}
	for _, w := range a.GetSchedule() {
		v.Schedule = append(v.Schedule, workersView{viewTime(w.GetBegins()), viewTime(w.GetEnds()), w.GetType(), w.GetWorkers()})
	}
	return v
}

// admissionWord returns a sweep's admission for a list.
func admissionWord(v *admissionView) string {
	switch {
	case v == nil:
		return "-"
	case v.Kind == "broken":
		return "late"
	}
	return v.Kind
}

// admissionLine describes a sweep's admission, with local times.
func (a *app) admissionLine(of *outbidv1.Admission) string {
	v := viewAdmission(of)
	if v == nil {
		return ""
	}
	switch v.Kind {
	case "admitted":
		return fmt.Sprintf("admitted: %d to %s from %s, ends %s, payoff %s", v.Least, english.Plural(int(v.Most), "worker", ""), a.when(v.Begins), a.when(v.Ends),
			formatMetric(float64(v.Worth-v.Cost)))
	case "waiting":
		text := fmt.Sprintf("not admitted now: it would cost %s and is worth %s", formatMetric(float64(v.Cost)), formatMetric(float64(v.Worth)))
		if v.Cost == 0 {
			return clean(v.Text)
		}
		if v.Again != nil {
			return text + "; would be admitted at " + a.when(v.Again)
		}
		return text + "; at these prices it would not be admitted later either"
	default:
		return clean(v.Text)
	}
}

// printSchedule prints the workers promised to a sweep.
func (a *app) printSchedule(of *outbidv1.Admission) {
	v := viewAdmission(of)
	if v == nil || len(v.Schedule) == 0 {
		return
	}
	a.printf("\npromised\n")
	t := table{indent: "  ", header: []string{"FROM", "TO", "TYPE", "WORKERS", "DEVICES"}}
	for _, w := range v.Schedule {
		t.rows = append(t.rows, []string{a.when(w.Begins), a.when(w.Ends), clean(w.Type), strconv.Itoa(int(w.Workers)), strconv.Itoa(int(w.Workers * max(1, v.WorkerDevices)))})
	}
	t.write(a.stdout)
}
