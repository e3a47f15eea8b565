package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// ref names a sweep, or one of its trials.
type ref struct {
	sweep string
	// trial is the number after the slash, or nil for the whole sweep.
	trial *int32
	// best is set for SWEEP/best.
	best bool
}

// parseRef parses SWEEP, SWEEP/TRIAL or SWEEP/best.
func parseRef(arg string) (ref, error) {
	name, trial, ok := strings.Cut(arg, "/")
	if name == "" {
		return ref{}, badInput("%q does not name a sweep: want SWEEP or SWEEP/TRIAL, such as digits-1 or digits-1/17", arg)
	}
	if !ok {
		return ref{sweep: name}, nil
	}
	if trial == "best" {
		return ref{sweep: name, best: true}, nil
	}
	n, err := strconv.ParseInt(trial, 10, 32)
	if err != nil || n < 0 {
		return ref{}, badInput("trial %q in %q: want a number from 0, or \"best\"", trial, arg)
	}
	return ref{sweep: name, trial: new(int32(n))}, nil
}

// sweepOnly parses an argument that must name a whole sweep.
func sweepOnly(arg string) (ref, error) {
	r, err := parseRef(arg)
	if err == nil && (r.trial != nil || r.best) {
		return ref{}, badInput("%q names a trial, but this command works on whole sweeps: try %q", arg, r.sweep)
	}
	return r, err
}

// onSweep connects to the server, finds the sweep that an argument names, and calls f with both.
func (cl *client) onSweep(ctx context.Context, arg string, f func(*connection, *outbidv1.Sweep) error) error {
	r, err := sweepOnly(arg)
	if err != nil {
		return err
	}
	c, err := cl.connect()
	if err != nil {
		return err
	}
	defer c.close()
	sweep, err := c.find(ctx, r.sweep)
	if err != nil {
		return err
	}
	return f(c, sweep)
}

// find returns the sweep with that id, or else the newest sweep with that name.
func (c *connection) find(ctx context.Context, name string) (*outbidv1.Sweep, error) {
	got, err := c.GetSweep(ctx, &outbidv1.GetSweepRequest{Sweep: name})
	if err == nil {
		return got.GetSweep(), nil
	}
	if !isCode(err, codes.NotFound) {
		return nil, err
	}
	var near []string
	for s, err := range c.sweeps(ctx, "") {
		if err != nil {
			return nil, err
		}
		if s.GetSpec().GetName() == name {
			return s, nil
		}
		if strings.HasPrefix(s.GetId(), name) || strings.HasPrefix(name, s.GetSpec().GetName()) {
			near = append(near, s.GetId())
		}
	}
	hint := "'outbid ls' lists them"
	if len(near) > 0 {
		hint = fmt.Sprintf("did you mean %q?", near[0])
	}
	return nil, badInput("there is no sweep %q on %s: %s", name, c.target.where(), hint)
}

// trial returns the trial that a ref names.
func (c *connection) trial(ctx context.Context, r ref) (*outbidv1.Trial, *outbidv1.Sweep, error) {
	sweep, err := c.find(ctx, r.sweep)
	if err != nil {
		return nil, nil, err
	}
	number := r.trial
	if r.best {
		if sweep.GetBest() == nil {
			return nil, nil, badInput("%s", noMetric(sweep))
		}
		number = new(sweep.GetBest().GetNumber())
	}
	got, err := c.GetTrial(ctx, &outbidv1.GetTrialRequest{Sweep: sweep.GetId(), Trial: *number})
	if err != nil {
		return nil, nil, err
	}
	return got.GetTrial(), sweep, nil
}

// completionTimeout prevents the shell from hanging if the server does not answer.
const completionTimeout = 2 * time.Second

// pageSize is the number of sweeps or trials per request.
const pageSize = 500

// sweeps yields every sweep, newest first.
func (c *connection) sweeps(ctx context.Context, tenant string) func(yield func(*outbidv1.Sweep, error) bool) {
	return func(yield func(*outbidv1.Sweep, error) bool) {
		req := &outbidv1.ListSweepsRequest{Tenant: tenant, PageSize: pageSize}
		for {
			page, err := c.ListSweeps(ctx, req)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, s := range page.GetSweeps() {
				if !yield(s, nil) {
					return
				}
			}
			if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
				return
			}
		}
	}
}

// trials yields a sweep's trials in the order "number" or "best", at most limit (0 for all).
func (c *connection) trials(ctx context.Context, sweep, order string, limit int,
) func(yield func(*outbidv1.Trial, error) bool) {
	return func(yield func(*outbidv1.Trial, error) bool) {
		req := &outbidv1.ListTrialsRequest{Sweep: sweep, PageSize: pageSize, Order: order}
		if limit > 0 {
			req.PageSize = int32(min(limit, pageSize))
		}
		for seen := 0; ; {
			page, err := c.ListTrials(ctx, req)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, t := range page.GetTrials() {
				if !yield(t, nil) {
					return
				}
				if seen++; seen == limit {
					return
				}
			}
			if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
				return
			}
		}
	}
}

// completeSweeps offers the ids and names of sweeps in the given states, or of all if states is nil.
func (cl *client) completeSweeps(states ...outbidv1.SweepState) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return cl.offerSweeps(cmd.Context(), prefix, states), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeTrials offers sweeps, and after a slash their trials.
func (cl *client) completeTrials(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	name, _, slash := strings.Cut(prefix, "/")
	if !slash {
		return cl.offerSweeps(cmd.Context(), prefix, nil), cobra.ShellCompDirectiveNoFileComp
	}
	return cl.offerTrials(cmd.Context(), name, prefix), cobra.ShellCompDirectiveNoFileComp
}

// offerSweeps asks the server for sweeps. It ignores errors, which would appear between keystrokes.
func (cl *client) offerSweeps(ctx context.Context, prefix string, states []outbidv1.SweepState) []string {
	c, err := cl.connect()
	if err != nil {
		return nil
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	var offers []string
	for s, err := range c.sweeps(ctx, "") {
		if err != nil {
			return offers
		}
		if len(states) > 0 && !slices.Contains(states, s.GetState()) {
			continue
		}
		about := fmt.Sprintf("\t%s, %d trials", sweepState(s.GetState()), s.GetCounts().GetTotal())
		if strings.HasPrefix(s.GetId(), prefix) {
			offers = append(offers, s.GetId()+about)
		}
	}
	return offers
}

// offerTrials lists the trials of a sweep whose numbers start with prefix.
func (cl *client) offerTrials(ctx context.Context, name, prefix string) []string {
	c, err := cl.connect()
	if err != nil {
		return nil
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	sweep, err := c.find(ctx, name)
	if err != nil {
		return nil
	}
	var offers []string
	for t, err := range c.trials(ctx, sweep.GetId(), "", 2000) {
		if err != nil {
			return offers
		}
		id := fmt.Sprintf("%s/%d", name, t.GetNumber())
		if strings.HasPrefix(id, prefix) {
			offers = append(offers, id+"\t"+trialState(t.GetState()))
		}
	}
	return offers
}
