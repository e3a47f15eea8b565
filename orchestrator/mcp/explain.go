package mcp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// explanation is the answer of explain.
type explanation struct {
	answer
	Sweep string `json:"sweep"`
	Trial *int32 `json:"trial,omitempty"`
	// Sentences are those of the command outbid explain.
	Sentences []string      `json:"sentences" jsonschema:"why it waits, runs or has ended; why it lost devices; how it would fare under another policy or weight"`
	Findings  []string      `json:"findings" jsonschema:"further findings, the most important first"`
	Rank      int           `json:"rank,omitempty" jsonschema:"the trial's rank by the metric, 1 is best"`
	Ranked    int           `json:"ranked,omitempty" jsonschema:"number of trials with a metric"`
	Failures  []failureView `json:"failures,omitempty" jsonschema:"failed trials by reason, the most frequent first"`
	// Parameters is only set for a sweep.
	Parameters []influence       `json:"parameters,omitempty" jsonschema:"how parameters and the metric are associated, the strongest first; an association is not a cause"`
	Rounds     []roundView       `json:"rounds,omitempty" jsonschema:"newest decisions of the policy on it"`
	Differs    map[string]change `json:"differs_from_best,omitempty" jsonschema:"parameters whose values differ from the best trial's"`
	Stderr     []string          `json:"stderr,omitempty" jsonschema:"last lines that the failed trial printed to stderr"`
	Notes      []noteView        `json:"notes,omitempty" jsonschema:"newest notes, oldest first"`
}

type failureView struct {
	Reason string `json:"reason"`
	Trials int    `json:"trials"`
	Sample int32  `json:"sample" jsonschema:"one of these trials; read_logs shows its output"`
}

// change is a parameter of a trial and of the best one.
type change struct {
	Here any `json:"here,omitempty"`
	Best any `json:"best,omitempty"`
}

// roundView is a decision of the policy on a sweep.
type roundView struct {
	Round     uint64     `json:"round"`
	Time      *time.Time `json:"time,omitempty"`
	Policy    string     `json:"policy"`
	Reason    string     `json:"reason,omitempty"`
	Decisions []string   `json:"decisions,omitempty" jsonschema:"what it gave to trials or took from them, and why"`
	Bid       *bidView   `json:"bid,omitempty" jsonschema:"the sweep's part in the auction, if there was one"`
}

type bidView struct {
	Asked    bool   `json:"asked" jsonschema:"whether devices were offered to it"`
	Rho      number `json:"rho" jsonschema:"finish-time fairness before the round: above 1 is later than alone on its share"`
	RhoAfter number `json:"rho_after"`
	Bids     int    `json:"bids" jsonschema:"number of subsets that it bid on"`
	Won      string `json:"won,omitempty"`
	Leftover string `json:"leftover,omitempty"`
	Why      string `json:"why,omitempty"`
}

const (
	maxFailures  = 10
	maxRounds    = 5
	maxDecisions = 10
	stderrLines  = 15
)

func explainTool() *tool {
	type arguments struct {
		Sweep string
		Trial *int32
	}
	return define(tool{
		name: "explain", title: "Explain a sweep or a trial",
		about: "Explains why a sweep or a trial waits, runs, was pruned or failed, why it lost devices, how it would fare under another policy " +
			"or weight, and what the best trial has in common with other good ones: the policy's decisions, failures by reason, and the " +
			"association of each parameter with the metric.",
		inputs: []input{sweepInput(), trialInput("the whole sweep is explained")},
	}, func(ctx context.Context, c *call, in arguments) (*explanation, error) {
		s, err := c.sweep(ctx, in.Sweep)
		if err != nil {
			return nil, err
		}
		all, whole, err := c.allTrials(ctx, s)
		if err != nil {
			return nil, err
		}
		v := &explanation{Sweep: s.GetId(), Trial: in.Trial}
		if !whole {
			v.cut("trials: only the first %d of %d were read", len(all), s.GetCounts().GetTotal())
		}
		var t *outbidv1.Trial
		if in.Trial == nil {
			v.explainSweep(s, all)
		} else if t, err = c.explainTrial(ctx, v, s, all, *in.Trial); err != nil {
			return nil, err
		}
		if err := c.addSentences(ctx, v, s, t); err != nil {
			return nil, err
		}
		return v, c.addRounds(ctx, v, s)
	})
}

// addSentences adds the sentences of the command outbid explain.
func (c *call) addSentences(ctx context.Context, v *explanation, s *outbidv1.Sweep, t *outbidv1.Trial) error {
	req := &outbidv1.ExplainSweepRequest{Sweep: s.GetId(), Simulate: true}
	if t != nil {
		req.Trial = &t.Number
	}
	got, err := c.API.ExplainSweep(ctx, req)
	for _, sentence := range []string{got.GetWhy(), got.GetLost(), got.GetOtherwise()} {
		if sentence != "" {
			v.Sentences = append(v.Sentences, cleanLine(sentence, 2*maxLine))
		}
	}
	return err
}

// find adds a finding.
func (v *explanation) find(format string, args ...any) {
	v.Findings = append(v.Findings, cleanLine(fmt.Sprintf(format, args...), 2*maxLine))
}

func (v *explanation) explainSweep(s *outbidv1.Sweep, all []*outbidv1.Trial) {
	counts := viewCounts(s.GetCounts())
	of := ""
	if n := s.GetOutlook().GetTrials(); n > 0 {
		of = fmt.Sprintf(" of %d planned", n)
	}
	v.find("%s is %s%s: %s%s; %d running, %d queued, %d paused, %d completed, %d pruned, %d stopped, %d failed", s.GetId(), sweepState(s),
		because(s.GetReason()), plural(counts.Total, "trial"), of, counts.Running, counts.Queued, counts.Paused, counts.Completed,
		counts.Pruned, counts.Stopped, counts.Failed)
	if a := s.GetAdmission(); a.GetText() != "" {
		v.find("admission: %s", a.GetText())
	}
	// A sweep of seconds mostly waits for processes to start, and a sweep alone shares nothing.
	if f := s.GetFairness(); f.GetAloneSeconds() >= 60 && f.GetMeanSweeps() >= 1.05 && !hasEnded(s) {
		v.find("it is forecast to end %.0f s after its submission, and would alone on its share after %.0f s (rho %.2f, %.1f sweeps share the cluster)",
			f.GetForecastSeconds(), f.GetAloneSeconds(), f.GetRho(), f.GetMeanSweeps())
	}
	if best := s.GetBest(); best != nil && best.Best != nil {
		v.find("the best trial is %d with %s %g at step %d; it is %s", best.GetNumber(), s.GetSpec().GetMetric(), best.GetBest(), best.GetBestStep(),
			viewTrial(best).State)
	} else {
		v.find("no trial has reported %q", s.GetSpec().GetMetric())
	}
	v.Failures = failures(all)
	for _, f := range v.Failures {
		v.find("%s failed: %s", plural(f.Trials, "trial"), f.Reason)
	}
	v.Parameters = influences(all)
	v.Ranked = len(ranking(s, all))
	v.Notes = viewNotes(s, 10)
}

// because returns a reason in brackets, or "".
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// failures groups failed trials by reason.
func failures(all []*outbidv1.Trial) []failureView {
	groups := map[string]*failureView{}
	for _, t := range all {
		if t.GetState() != outbidv1.TrialState_TRIAL_STATE_FAILED {
			continue
		}
		reason := cleanLine(t.GetReason(), maxLine)
		if groups[reason] == nil {
			groups[reason] = &failureView{Reason: reason, Sample: t.GetNumber()}
		}
		groups[reason].Trials++
	}
	var found []failureView
	for _, g := range groups {
		found = append(found, *g)
	}
	slices.SortFunc(found, func(a, b failureView) int {
		return cmp.Or(cmp.Compare(b.Trials, a.Trials), cmp.Compare(a.Sample, b.Sample))
	})
	return found[:min(len(found), maxFailures)]
}

// ranking returns the numbers of the trials with a metric, the best first.
func ranking(s *outbidv1.Sweep, all []*outbidv1.Trial) []int32 {
	var with []*outbidv1.Trial
	for _, t := range all {
		if t.Best != nil {
			with = append(with, t)
		}
	}
	slices.SortStableFunc(with, func(a, b *outbidv1.Trial) int {
		if s.GetSpec().GetMode() == "max" {
			a, b = b, a
		}
		return cmp.Compare(a.GetBest(), b.GetBest())
	})
	var numbers []int32
	for _, t := range with {
		numbers = append(numbers, t.GetNumber())
	}
	return numbers
}

func (c *call) explainTrial(ctx context.Context, v *explanation, s *outbidv1.Sweep, all []*outbidv1.Trial, n int32) (*outbidv1.Trial, error) {
	t, err := c.trial(ctx, s, &n)
	if err != nil {
		return nil, err
	}
	one := viewTrial(t)
	v.find("trial %d is %s%s at step %d", n, one.State, because(one.Reason), one.Step)
	if t.GetState() == outbidv1.TrialState_TRIAL_STATE_FAILED {
		if v.Stderr, err = c.stderr(ctx, s.GetId(), n); err != nil {
			return nil, err
		}
	}
	if t.GetRestarts() > 0 || t.GetNodeLosses() > 0 {
		v.find("its process was started again %d times after failures; %d nodes were lost while it ran there", t.GetRestarts(), t.GetNodeLosses())
	}
	order := ranking(s, all)
	v.Rank, v.Ranked = slices.Index(order, n)+1, len(order)
	if v.Rank > 0 {
		v.find("it ranks %d of %d by %s %s with %g at step %d", v.Rank, v.Ranked, s.GetSpec().GetMode(), s.GetSpec().GetMetric(), t.GetBest(),
			t.GetBestStep())
	}
	v.compareWithBest(s.GetBest(), one)
	for _, note := range viewNotes(s, len(s.GetNotes())) {
		if note.Trial != nil && *note.Trial == n {
			v.Notes = append(v.Notes, note)
		}
	}
	v.Notes = v.Notes[max(0, len(v.Notes)-10):]
	return t, nil
}

func (v *explanation) compareWithBest(best *outbidv1.Trial, one trialView) {
	if best == nil || best.GetNumber() == one.Trial {
		return
	}
	both := compareView{Differ: map[string]map[string]any{}, Same: map[string]any{}}
	both.split(map[string]map[string]any{"here": one.Config, "best": configOf(best)})
	v.Differs = map[string]change{}
	for path, values := range both.Differ {
		v.Differs[path] = change{values["here"], values["best"]}
	}
}

// stderr returns the last lines of a trial's stderr, or none if the caller may not read logs.
func (c *call) stderr(ctx context.Context, sweep string, trial int32) ([]string, error) {
	lines, err := c.logs(ctx, sweep, &trial, 200)
	if status.Code(err) == codes.PermissionDenied {
		return nil, nil
	}
	var found []string
	for _, line := range lines {
		if line.Stream == "stderr" {
			found = append(found, line.Text)
		}
	}
	return found[max(0, len(found)-stderrLines):], err
}

// addRounds adds the newest decisions of the policy on the sweep, or on the trial.
func (c *call) addRounds(ctx context.Context, v *explanation, s *outbidv1.Sweep) error {
	got, err := c.API.ListRounds(ctx, &outbidv1.ListRoundsRequest{Sweep: s.GetId(), Limit: 20})
	if err != nil {
		return err
	}
	for _, r := range got.GetRounds() {
		if len(v.Rounds) == maxRounds {
			break
		}
		round := viewRound(r, s.GetId(), v.Trial)
		if len(round.Decisions) > 0 || round.Bid != nil {
			v.Rounds = append(v.Rounds, round)
		}
	}
	return nil
}

func viewRound(r *outbidv1.Round, sweep string, trial *int32) roundView {
	v := roundView{Round: r.GetRound(), Time: timeOf(r.GetTime()), Policy: r.GetPolicy(), Reason: cleanLine(r.GetReason(), maxLine)}
	for _, d := range r.GetDecisions() {
		if d.GetSweep() != sweep || trial != nil && d.GetTrial() != *trial || len(v.Decisions) == maxDecisions {
			continue
		}
		devices := ""
		for _, p := range d.GetPlaces() {
			devices += fmt.Sprintf(" devices %d of %s", p.GetDevices(), p.GetNode())
		}
		v.Decisions = append(v.Decisions, cleanLine(fmt.Sprintf("%s trial %d%s: %s", d.GetKind(), d.GetTrial(), devices, d.GetReason()), maxLine))
	}
	for _, b := range r.GetAuction().GetBidders() {
		if b.GetSweep() == sweep && trial == nil {
			v.Bid = &bidView{
				Asked: b.GetAsked(), Rho: number(b.GetRho()), RhoAfter: number(b.GetRhoAfter()), Bids: len(b.GetBids()), Won: lots(b.GetWon()),
				Leftover: lots(b.GetLeftover()), Why: cleanLine(cmp.Or(b.GetRefused(), b.GetWhy()), maxLine),
			}
		}
	}
	return v
}

// lots describes devices, such as "2 v100 on a".
func lots(all []*outbidv1.Lot) string {
	text := ""
	for i, l := range all {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%d %s on %s", l.GetDevices(), l.GetType(), l.GetNode())
	}
	return cleanLine(text, maxLine)
}
