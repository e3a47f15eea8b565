package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// simulationView is the output of `what-if -o json`.
type simulationView struct {
	Assumptions []string           `json:"assumptions" doc:"how the simulations differ from what happened"`
	Runs        []simulatedRunView `json:"runs" doc:"what happened, with an empty policy, and then each simulation: policy, weight (of --sweep; 0 if unchanged), sweeps: sweep (empty for other tenants), submitted, seconds (to its end; null if it did not end), rho (null if unknown), device_seconds, unknown_speed (a simulation only guesses)"`
}

type simulatedRunView struct {
	Policy string               `json:"policy"`
	Weight number               `json:"weight"`
	Sweeps []simulatedSweepView `json:"sweeps"`
}

type simulatedSweepView struct {
	Sweep         string     `json:"sweep"`
	Submitted     *time.Time `json:"submitted"`
	Seconds       *number    `json:"seconds"`
	Rho           *number    `json:"rho"`
	DeviceSeconds number     `json:"device_seconds"`
	UnknownSpeed  bool       `json:"unknown_speed"`
}

// whatIfFlags are the flags of `what-if`.
type whatIfFlags struct {
	policies            []string
	since, until, sweep string
	weight              float64
	out                 format
}

func (ex *explainCommand) whatIfCommand() *cobra.Command {
	var o whatIfFlags
	cmd := &cobra.Command{
		Use:   "what-if",
		Short: "Simulate what another policy or weight would have done",
		Long: `What-if shows when each sweep ended, its rho and its devices on average, and how it would have fared in simulations of
the server's ledger: under the policy that it had, with another weight of --sweep, and under other policies. Compare
with the simulation of the server's own policy, because all simulations have the same assumptions.

The server simulates for one caller at a time, for at most a minute, beside its work. It takes sweeps that were
submitted in a period, at most 2,000, and ledgers of at most 128 MiB; 'outbid replay --policy' has no such limits.
Users see the names of their own sweeps. A time is a date (UTC), a time in RFC 3339, or a duration before now (24h,
30d).`,
		Example: `  outbid what-if --policy las,drf --since 7d
  outbid what-if --sweep digits-1 --weight 2
  outbid what-if --policy fifo -o json | jq '.runs[-1].sweeps'`,
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := o.request(ex.now())
			if err != nil {
				return err
			}
			c, err := ex.connect()
			if err != nil {
				return err
			}
			defer c.close()
			stream, err := c.SimulateLedger(cmd.Context(), req)
			if err != nil {
				return err
			}
			v := simulationView{Assumptions: []string{}, Runs: []simulatedRunView{}}
			for {
				got, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					return ex.printSimulation(o.out, v)
				}
				if err != nil {
					return err
				}
				if run := got.GetRun(); run != nil {
					v.Assumptions = append(v.Assumptions, run.GetAssumptions()...)
					v.Runs = append(v.Runs, viewSimulated(run))
				}
			}
		},
	}
	outputFlag(cmd, &o.out)
	f := cmd.Flags()
	f.StringSliceVar(&o.policies, "policy", nil, "`NAMES` of other policies, separated by commas; at most four")
	f.StringVar(&o.sweep, "sweep", "", "`SWEEP` that would have another weight")
	f.Float64Var(&o.weight, "weight", 0, "weight of --sweep")
	f.StringVar(&o.since, "since", "", "start of the period (default: of the ledger)")
	f.StringVar(&o.until, "until", "", "end of the period (default: now)")
	complete(cmd, "policy", ex.edition.Policies.Names()...)
	return cmd
}

// request checks the flags and returns the request.
func (o *whatIfFlags) request(now time.Time) (*outbidv1.SimulateLedgerRequest, error) {
	if len(o.policies) == 0 && o.sweep == "" {
		return nil, badInput("nothing to simulate: give --policy, or --sweep and --weight")
	}
	if (o.sweep == "") != (o.weight == 0) {
		return nil, badInput("--sweep and --weight: give both or none")
	}
	req := &outbidv1.SimulateLedgerRequest{Policies: o.policies, Sweep: o.sweep, Weight: o.weight}
	period := usageFlags{since: o.since, until: o.until}
	since, until, err := period.period(now)
	if err != nil {
		return nil, err
	}
	if !since.IsZero() {
		req.Since = timestamppb.New(since)
	}
	if !until.IsZero() {
		req.Until = timestamppb.New(until)
	}
	return req, nil
}

func viewSimulated(run *outbidv1.SimulatedRun) simulatedRunView {
	v := simulatedRunView{Policy: run.GetPolicy(), Weight: number(run.GetWeight()), Sweeps: []simulatedSweepView{}}
	for _, s := range run.GetSweeps() {
		row := simulatedSweepView{
			Sweep: s.GetSweep(), Submitted: viewTime(s.GetSubmitted()), DeviceSeconds: number(s.GetDeviceSeconds()), UnknownSpeed: s.GetUnknownSpeed(),
		}
		if s.Seconds != nil {
			row.Seconds = new(number(s.GetSeconds()))
		}
		if s.Rho != nil {
			row.Rho = new(number(s.GetRho()))
		}
		v.Sweeps = append(v.Sweeps, row)
	}
	return v
}

// printSimulation prints a row for each sweep, and a column for each run.
func (ex *explainCommand) printSimulation(out format, v simulationView) error {
	if out != formatTable {
		return ex.printObject(out, v)
	}
	for _, line := range v.Assumptions {
		ex.notef("assumed: %s", line)
	}
	t := table{header: []string{"SWEEP"}}
	for _, run := range v.Runs {
		t.header = append(t.header, runName(run))
		for i, s := range run.Sweeps {
			for len(t.rows) <= i {
				name := clean(s.Sweep)
				if name == "" {
					name = "(another tenant's)"
				}
				t.rows = append(t.rows, []string{name})
			}
			t.rows[i] = append(t.rows[i], s.cell())
		}
	}
	t.write(ex.stdout)
	return nil
}

// runName returns the header of a run.
func runName(run simulatedRunView) string {
	switch {
	case run.Policy == "":
		return "HAPPENED"
	case run.Weight != 0:
		return fmt.Sprintf("%s, WEIGHT %v", strings.ToUpper(run.Policy), run.Weight)
	}
	return strings.ToUpper(run.Policy)
}

// cell returns how a sweep fared.
func (s simulatedSweepView) cell() string {
	if s.Seconds == nil {
		return "not ended"
	}
	text := formatDuration(float64(*s.Seconds))
	if s.Rho != nil {
		text += ", rho " + formatRho(float64(*s.Rho))
	}
	if *s.Seconds > 0 {
		text += fmt.Sprintf(", %.2g devices", float64(s.DeviceSeconds / *s.Seconds))
	}
	return text
}
