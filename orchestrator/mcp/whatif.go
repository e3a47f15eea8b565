package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/usage"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// whatIfView is the answer of what_if. Its size is bounded by the number of runs, which the server limits, and of rows.
type whatIfView struct {
	answer
	Assumptions  []string       `json:"assumptions" jsonschema:"how the simulations differ from what happened"`
	Runs         []runView      `json:"runs" jsonschema:"what happened, then each simulation; the first simulation is of the server's own policy: compare with that one"`
	Compared     int            `json:"compared" jsonschema:"number of sweeps that ended in every run; the means and worst_rho are over these, including other tenants'"`
	OtherTenants int            `json:"other_tenants,omitempty" jsonschema:"number of simulated sweeps that belong to other tenants or were deleted; they are not in sweeps"`
	Sweeps       []simulatedRow `json:"sweeps" jsonschema:"the sweep of the request, then the newest ones"`
}

// runView is a simulation, or the reality.
type runView struct {
	Policy      string  `json:"policy" jsonschema:"empty for what happened"`
	Weight      number  `json:"weight,omitempty" jsonschema:"the other weight of the request's sweep; absent if it has its own"`
	Ended       int     `json:"ended" jsonschema:"number of sweeps that ended"`
	MeanSeconds *number `json:"mean_seconds,omitempty" jsonschema:"from submission to end"`
	MeanRho     *number `json:"mean_rho,omitempty" jsonschema:"finish time beside others divided by finish time alone; fair is about 1, and lower is better"`
	WorstRho    *number `json:"worst_rho,omitempty"`
}

// simulatedRow is a sweep in each run.
type simulatedRow struct {
	Sweep        string     `json:"sweep"`
	Submitted    *time.Time `json:"submitted,omitempty"`
	UnknownSpeed bool       `json:"unknown_speed,omitempty" jsonschema:"no trial of it has shown its speed, so that simulations only guess"`
	Fates        []fateView `json:"fates" jsonschema:"how it fared in each run, in the order of runs"`
}

type fateView struct {
	Seconds *number `json:"seconds" jsonschema:"from submission to end; null if it did not end"`
	Rho     *number `json:"rho,omitempty" jsonschema:"absent if unknown"`
	Devices *number `json:"devices,omitempty" jsonschema:"devices that it held, on average until its end"`
}

// simulation has the arguments of what_if.
type simulation struct {
	Policies     []string
	Sweep        string
	Weight       float64
	Since, Until string
	Limit        int
}

// maxSimulatedRows limits the sweeps in an answer of what_if.
const maxSimulatedRows = 50

func whatIfTool() *tool {
	when := "a date (UTC), a time in RFC 3339, or a duration before now such as 24h or 30d"
	return define(tool{
		name: "what_if", title: "Simulate other policies or weights", waits: true,
		about: "Simulates the sweeps of a period under the server's policy, under others, and with another weight of one sweep: when each would have " +
			"ended, its finish-time fairness rho and its devices. It changes nothing. It takes up to a minute of the server's time, and each tenant can " +
			"have one simulation at once.",
		inputs: []input{
			{name: "policies", kind: "array", most: 4, about: "other policies, such as fifo, las or drf; an error lists those of the server"},
			{name: "sweep", kind: "string", most: 200, about: "sweep that would have another weight: an id, or a name for its newest sweep"},
			{name: "weight", kind: "number", about: "that weight, above 0; 1 is usual"},
			{name: "since", kind: "string", most: 50, about: "start of the period in which sweeps were submitted; if absent, that of the ledger: " + when},
			{name: "until", kind: "string", most: 50, about: "end of the period; if absent, now: " + when},
			limitInput(maxSimulatedRows, 20),
		},
	}, func(ctx context.Context, c *call, in simulation) (*whatIfView, error) {
		req, err := c.simulationRequest(ctx, in, time.Now())
		if err != nil {
			return nil, err
		}
		runs, err := c.simulate(ctx, req)
		if err != nil {
			return nil, err
		}
		return viewSimulation(runs, req.GetSweep(), in.Limit), nil
	})
}

// simulationRequest returns the request of the API for the arguments.
func (c *call) simulationRequest(ctx context.Context, in simulation, now time.Time) (*outbidv1.SimulateLedgerRequest, error) {
	switch {
	case len(in.Policies) == 0 && in.Sweep == "" && in.Weight == 0:
		return nil, errors.New("nothing to simulate: give policies, or sweep and weight")
	case (in.Sweep == "") != (in.Weight == 0):
		return nil, errors.New("sweep and weight: give both or none")
	}
	req := &outbidv1.SimulateLedgerRequest{Policies: in.Policies, Weight: in.Weight}
	for _, bound := range []struct {
		name, text string
		to         **timestamppb.Timestamp
	}{{"since", in.Since, &req.Since}, {"until", in.Until, &req.Until}} {
		at, err := usage.ParseTime(bound.text, now)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", bound.name, err)
		}
		if !at.IsZero() {
			*bound.to = timestamppb.New(at)
		}
	}
	if in.Sweep != "" {
		s, err := c.sweep(ctx, in.Sweep)
		if err != nil {
			return nil, err
		}
		req.Sweep = s.GetId()
	}
	return req, nil
}

// simulationCalls is how many times longer than another call a simulation may take, because it waits for others.
const simulationCalls = 3

// simulate returns what happened and the simulations, and reports progress to the client. When ctx ends, so does the
// simulation on the server.
func (c *call) simulate(ctx context.Context, req *outbidv1.SimulateLedgerRequest) ([]*outbidv1.SimulatedRun, error) {
	patience := simulationCalls * c.server.callTimeout
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var runs []*outbidv1.SimulatedRun
	stream, err := c.API.SimulateLedger(limited, req)
	for err == nil {
		var got *outbidv1.SimulateLedgerResponse
		if got, err = stream.Recv(); err != nil {
			break
		}
		if run := got.GetRun(); run != nil {
			runs = append(runs, run)
		} else {
			c.simulationProgress(ctx, len(runs), req, got.GetProgress())
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return runs, nil
	case ctx.Err() == nil && limited.Err() != nil:
		return nil, fmt.Errorf("the simulation did not end within %s, because others ran before it; try again later", patience.Round(time.Second))
	case status.Code(err) == codes.DeadlineExceeded:
		return nil, errors.New(status.Convert(err).Message()) // the server's limit
	}
	return nil, err
}

// simulationProgress tells the client what a simulation does. A simulation counts as one.
func (c *call) simulationProgress(ctx context.Context, runs int, req *outbidv1.SimulateLedgerRequest, p *outbidv1.SimulationProgress) {
	simulations := 1 + len(req.GetPolicies())
	if req.GetSweep() != "" {
		simulations++
	}
	switch {
	case p.GetWaiting():
		c.progress(ctx, 0, float64(simulations), "waits for another simulation to end")
	case p.GetPolicy() == "":
		c.progress(ctx, 0, float64(simulations), "reads the ledger")
	default:
		done := float64(max(0, runs-1)) + float64(p.GetEnded())/float64(max(1, p.GetSweeps()))
		c.progress(ctx, done, float64(simulations), fmt.Sprintf("simulates %s: %d of %d sweeps have ended", cleanLine(p.GetPolicy(), maxName), p.GetEnded(), p.GetSweeps()))
	}
}

// viewSimulation returns the answer of what_if with at most limit sweeps, asked first.
func viewSimulation(runs []*outbidv1.SimulatedRun, asked string, limit int) *whatIfView {
	v := &whatIfView{Assumptions: []string{}, Runs: []runView{}, Sweeps: []simulatedRow{}}
	if len(runs) == 0 {
		return v
	}
	var rows []simulatedRow
	for i, s := range runs[0].GetSweeps() {
		row := simulatedRow{Sweep: cleanLine(s.GetSweep(), maxName), Submitted: timeOf(s.GetSubmitted()), UnknownSpeed: s.GetUnknownSpeed()}
		for _, run := range runs {
			row.Fates = append(row.Fates, viewFate(run, i))
		}
		rows = append(rows, row)
	}
	v.Assumptions = append(v.Assumptions, lines(runs[0].GetAssumptions())...)
	v.summarise(runs, rows)
	slices.Reverse(rows)
	named := slices.DeleteFunc(rows, func(row simulatedRow) bool { return row.Sweep == "" })
	v.OtherTenants = len(runs[0].GetSweeps()) - len(named)
	slices.SortStableFunc(named, func(a, b simulatedRow) int { return -cmp.Compare(isSweep(a, asked), isSweep(b, asked)) })
	v.Sweeps = append(v.Sweeps, named[:min(limit, len(named))]...)
	if more := len(named) - limit; more > 0 {
		v.cut("sweeps: %d older ones; give a shorter period, or a limit of up to %d", more, maxSimulatedRows)
	}
	return v
}

// isSweep returns 1 for the row of a sweep and 0 for others.
func isSweep(row simulatedRow, sweep string) int {
	if row.Sweep == sweep {
		return 1
	}
	return 0
}

// viewFate returns how the sweep of a row fared in a run.
func viewFate(run *outbidv1.SimulatedRun, row int) fateView {
	var v fateView
	if row >= len(run.GetSweeps()) {
		return v
	}
	s := run.GetSweeps()[row]
	if s.Rho != nil {
		v.Rho = new(number(s.GetRho()))
	}
	if s.Seconds != nil {
		v.Seconds = new(number(s.GetSeconds()))
		if s.GetSeconds() > 0 {
			v.Devices = new(number(s.GetDeviceSeconds() / s.GetSeconds()))
		}
	}
	return v
}

// summarise adds the runs with their means.
func (v *whatIfView) summarise(runs []*outbidv1.SimulatedRun, rows []simulatedRow) {
	for i, run := range runs {
		one := runView{Policy: cleanLine(run.GetPolicy(), maxName), Weight: number(run.GetWeight())}
		var seconds, rhos []number
		for _, row := range rows {
			if row.Fates[i].Seconds != nil {
				one.Ended++
			}
			if slices.ContainsFunc(row.Fates, func(f fateView) bool { return f.Seconds == nil }) {
				continue
			}
			seconds = append(seconds, *row.Fates[i].Seconds)
			if !slices.ContainsFunc(row.Fates, func(f fateView) bool { return f.Rho == nil }) {
				rhos = append(rhos, *row.Fates[i].Rho)
			}
		}
		v.Compared = len(seconds)
		one.MeanSeconds, one.MeanRho = mean(seconds), mean(rhos)
		if len(rhos) > 0 {
			one.WorstRho = new(slices.Max(rhos))
		}
		v.Runs = append(v.Runs, one)
	}
}

// mean returns the mean, or nil of nothing.
func mean(values []number) *number {
	if len(values) == 0 {
		return nil
	}
	sum := number(0)
	for _, v := range values {
		sum += v
	}
	return new(sum / number(len(values)))
}
