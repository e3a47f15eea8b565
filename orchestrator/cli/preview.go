package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/api"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// previewView is the output of `preview -o json`.
type previewView struct {
	Trials      *int32            `json:"trials" doc:"total trials; null if unbounded"`
	Steps       *int64            `json:"steps" doc:"total steps; null if unbounded"`
	DeviceHours *number           `json:"device_hours" doc:"device-hours at --step-seconds; null without it"`
	LeastCost   *number           `json:"least_cost" doc:"cost of device_hours on the cheapest type of device that the sweep may use; null without device_hours or prices"`
	MostCost    *number           `json:"most_cost" doc:"the same on the dearest type"`
	Currency    string            `json:"currency" doc:"currency of the costs"`
	Rungs       []rungView        `json:"rungs" doc:"rungs: bracket, until_step, trials, steps"`
	Examples    []json.RawMessage `json:"examples" doc:"example configurations"`
	Warnings    []string          `json:"warnings" doc:"warnings about the sweep"`
	Local       bool              `json:"local" doc:"whether it was computed locally, because no server answered"`
}

type rungView struct {
	Bracket   int32 `json:"bracket"`
	UntilStep int64 `json:"until_step"`
	Trials    int32 `json:"trials"`
	Steps     int64 `json:"steps"`
}

func (sw *sweepCommands) previewCommand() *cobra.Command {
	var out format
	var stepSeconds float64
	cmd := &cobra.Command{
		Use:   "preview FILE.yaml",
		Short: "Show what a sweep would do, without starting it",
		Long: `Preview checks a sweep's file and shows its rungs, its total trials and steps, and examples
of its configurations. With --step-seconds it also estimates the device-hours, and their cost if
the server has prices.

The server computes the preview, because it knows the nodes. If none answers, the same tuner's code runs here.`,
		Example: `  outbid preview sweep.yaml
  outbid preview sweep.yaml --step-seconds 2.5
  outbid preview sweep.yaml -o json | jq .steps`,
		Args:              exactArgs("FILE.yaml"),
		ValidArgsFunction: completeYAML,
		RunE: func(cmd *cobra.Command, args []string) error {
			if stepSeconds < 0 {
				return badInput("--step-seconds %g: want more than 0", stepSeconds)
			}
			file, err := sw.readSpec(args[0])
			if err != nil {
				return err
			}
			got, local, err := sw.preview(cmd.Context(), file, stepSeconds)
			if err != nil {
				return err
			}
			v := viewPreview(got, local, stepSeconds)
			if out != formatTable {
				return sw.printObject(out, v)
			}
			sw.printPreview(file.spec, v, stepSeconds)
			return nil
		},
	}
	outputFlag(cmd, &out)
	cmd.Flags().Float64Var(&stepSeconds, "step-seconds", 0, "`SECONDS` that one step takes on one device")
	return cmd
}

// preview asks the server, or computes the preview locally if none answers.
func (sw *sweepCommands) preview(ctx context.Context, file *specFile, stepSeconds float64) (
	got *outbidv1.PreviewSweepResponse, local bool, err error,
) {
	c, err := sw.connect()
	if err == nil {
		defer c.close()
		got, err = c.PreviewSweep(ctx, &outbidv1.PreviewSweepRequest{Spec: file.spec, StepSeconds: stepSeconds})
	}
	if !unreachableError(err) || sw.opts.server != "" {
		return got, false, file.locate(err)
	}
	if got, err = api.Preview(file.spec, stepSeconds); err != nil {
		return nil, false, badInput("%w", err)
	}
	return got, true, nil
}

func viewPreview(p *outbidv1.PreviewSweepResponse, local bool, stepSeconds float64) previewView {
	v := previewView{Rungs: []rungView{}, Examples: []json.RawMessage{}, Warnings: p.GetWarnings(), Local: local}
	if v.Warnings == nil {
		v.Warnings = []string{}
	}
	if n := p.GetOutlook().GetTrials(); n > 0 {
		v.Trials = new(n)
	}
	if n := p.GetOutlook().GetSteps(); n > 0 {
		v.Steps = new(n)
	}
	if stepSeconds > 0 {
		v.DeviceHours = new(number(p.GetDeviceHours()))
	}
	if v.Currency = p.GetCurrency(); p.LeastCost != nil && p.MostCost != nil {
		v.LeastCost, v.MostCost = new(number(p.GetLeastCost())), new(number(p.GetMostCost()))
	}
	for _, r := range p.GetOutlook().GetRungs() {
		v.Rungs = append(v.Rungs, rungView{r.GetBracket(), r.GetUntilStep(), r.GetTrials(), r.GetSteps()})
	}
	for _, e := range p.GetExamples() {
		v.Examples = append(v.Examples, exampleJSON(e))
	}
	return v
}

// cost describes the cost of the device time.
func (v *previewView) cost() string {
	line := costText(v.LeastCost, "")
	if most := costText(v.MostCost, ""); most != line {
		line += " to " + most
	}
	return strings.TrimSpace(line + " " + clean(v.Currency))
}

// exampleJSON returns a configuration as JSON.
func exampleJSON(s *structpb.Struct) json.RawMessage {
	return configOf(&outbidv1.Trial{Config: s})
}

func (sw *sweepCommands) printPreview(spec *outbidv1.SweepSpec, v previewView, stepSeconds float64) {
	trials, steps := "unbounded", "unbounded"
	if v.Trials != nil {
		trials = formatCount(int64(*v.Trials))
	}
	if v.Steps != nil {
		steps = formatCount(*v.Steps)
	}
	t := table{rows: [][]string{
		{"sweep", clean(spec.GetName())}, {"tuner", tunerName(spec.GetTuner())}, {"trials", trials}, {"steps", steps},
	}}
	if v.DeviceHours != nil {
		t.rows = append(t.rows, []string{"device time", fmt.Sprintf("%.3g hours at %g s a step", float64(*v.DeviceHours),
			stepSeconds)})
	}
	if v.LeastCost != nil {
		t.rows = append(t.rows, []string{"cost", v.cost()})
	}
	t.write(sw.stdout)
	if len(v.Rungs) > 0 {
		sw.printf("\n")
		rungs := table{header: []string{"BRACKET", "UNTIL STEP", "TRIALS", "STEPS"}}
		for _, r := range v.Rungs {
			rungs.rows = append(rungs.rows, []string{
				strconv.Itoa(int(r.Bracket)), formatCount(r.UntilStep), formatCount(int64(r.Trials)), formatCount(r.Steps),
			})
		}
		rungs.write(sw.stdout)
	}
	for i, e := range v.Examples {
		if i == 0 {
			sw.printf("\nconfigurations such as\n")
		}
		sw.printf("  %s\n", configLine(e))
	}
	for i, w := range v.Warnings {
		if i == 0 {
			sw.printf("\n")
		}
		sw.printf("warning: %s\n", clean(w))
	}
	if v.Local {
		sw.notef("no server answers, so this was computed locally, without regard to the devices of a cluster")
	}
}
