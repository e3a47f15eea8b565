package plugin

import (
	"bytes"
	"context"
	"encoding/gob"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// maxTries is the maximum number of draws for one configuration that meets the constraints.
const maxTries = 200

// A Ruled combines a built-in tuner, the rule, with a program that draws its configurations. The program serves
// TunerService, but receives fewer events. It is asked for one trial at a time and receives the metric of a trial that
// reached a target (as Reported) or ended (as Exited). A configuration that breaks the constraints is reported to it as
// a failed trial.
type Ruled struct {
	rule  tuner.Tuner
	draws *Client
	// validator knows the trials that the rule has ended, whose events are dropped, and the search space.
	validator *validator
	// objectives are the additional metrics to optimise.
	objectives []*outbidv1.Objective
	// untold are the events that will be sent to the program with the next question.
	untold []tuner.Event
	ruledState
}

// ruledState is the part of a Ruled that is in snapshots.
type ruledState struct {
	// Numbers maps trials to the program's numbers, or unknown for a trial that it did not draw.
	Numbers []int32
	// Next is the program's number for its next trial.
	Next int32
	// Metrics are the newest metric of each trial, NaN if it has none; Steps are their steps.
	Metrics []float64
	Steps   []int64
	// Objectives are the newest values of the additional metrics, if there are any.
	Objectives map[tuner.Trial]map[string]float64
}

// unknown marks a trial that the program did not draw.
const unknown = -1

var _ tuner.Tuner = (*Ruled)(nil)

// command returns the program that draws: by default the one with Optuna's samplers.
func command(s tuner.Settings) []string {
	if named := s.Spec.GetTuner().GetPlugin().GetCommand(); len(named) > 0 {
		return named
	}
	return []string{"python3", "-m", "outbid.plugin.optuna"}
}

// LaunchRuled starts a rule and the program that draws for it, for a new sweep or from a snapshot of a Ruled.
func LaunchRuled(ctx context.Context, s tuner.Settings, snapshot []byte, logger *slog.Logger) (*Ruled, error) {
	var kept ruledEnvelope
	if len(snapshot) > 0 {
		if err := gob.NewDecoder(bytes.NewReader(snapshot)).Decode(&kept); err != nil {
			return nil, fmt.Errorf("%w: %w", tuner.ErrBadSnapshot, err)
		}
	}
	r := &Ruled{ruledState: kept.State, objectives: s.Spec.GetObjectives()}
	var err error
	if r.validator, err = newValidator(s); err != nil {
		return nil, err
	}
	r.validator.validatorState = kept.Guard
	if len(snapshot) > 0 {
		r.rule, err = registry.Restore(ruleSettings(s), kept.Rule)
	} else {
		r.rule, err = registry.New(ruleSettings(s))
	}
	if err != nil {
		return nil, err
	}
	drawn, err := drawSettings(s)
	if err != nil {
		return nil, err
	}
	if r.draws, err = Launch(ctx, command(s), drawn, kept.Draws, logger); err != nil {
		return nil, needsOptuna(s, err)
	}
	return r, nil
}

// needsOptuna explains what to install if the server's own sampler program does not start.
func needsOptuna(s tuner.Settings, err error) error {
	own := s.Spec.GetTuner().GetPlugin()
	if len(own.GetCommand()) > 0 || strings.Contains(err.Error(), "settings.") {
		return err
	}
	name := own.GetSettings().GetFields()["sampler"].GetStringValue()
	return fmt.Errorf("sampler: %s is one of Optuna's, which needs Python with Optuna where the server runs: "+
		"pip install 'outbid[optuna]' for the python3 that it finds, or use random or sobol: %w", name, err)
}

// ruleSettings returns the sweep's settings with the rule as the tuner.
func ruleSettings(s tuner.Settings) tuner.Settings {
	return tuner.Settings{Spec: tuner.RuleSpec(s.Spec)}
}

// drawSettings returns the sweep's settings for the program. It sets no targets, so it needs no step limit. The initial
// configurations are completed so that they meet the constraints.
func drawSettings(s tuner.Settings) (tuner.Settings, error) {
	spec := proto.CloneOf(s.Spec)
	points, err := engine.Points(spec)
	if err != nil {
		return tuner.Settings{}, err
	}
	spec.GetTuner().Points = points
	own := spec.GetTuner().GetPlugin()
	own.MaxSteps, own.Rule = 0, tuner.RuleSpec(s.Spec).GetTuner()
	return tuner.Settings{Spec: spec}, nil
}

// Handle implements tuner.Tuner.
func (r *Ruled) Handle(event tuner.Event) ([]tuner.Action, error) {
	if r.validator.isStale(event) {
		return nil, nil
	}
	if err := r.validator.recordEvent(event); err != nil {
		return nil, err
	}
	rules := event
	switch e := event.(type) {
	case tuner.Reported:
		r.note(e.Trial, e.Step, e.Metric, e.Metrics)
	case tuner.Reached:
		r.note(e.Trial, e.Step, e.Metric, e.Metrics)
		r.tell(e.Trial, func(n tuner.Trial) tuner.Event {
			return tuner.Reported{Trial: n, Step: e.Step, Metric: e.Metric, Metrics: maps.Clone(r.Objectives[e.Trial])}
		})
	case tuner.Exited:
		r.note(e.Trial, e.Step, e.Metric, e.Metrics)
		r.ended(e.Trial, e.Failed)
	case tuner.Extended:
		rules = tuner.Extended{Settings: ruleSettings(e.Settings)}
		drawn, err := drawSettings(e.Settings)
		if err != nil {
			return nil, err
		}
		if _, err := r.question(tuner.Extended{Settings: drawn}); err != nil {
			return nil, err
		}
	}
	actions, err := r.rule.Handle(rules)
	if err != nil {
		return nil, err
	}
	if actions, err = r.follow(event, actions); err != nil || len(r.untold) < untoldAtMost {
		return actions, err
	}
	_, err = r.question()
	return actions, err
}

// untoldAtMost is the number of events after which they are sent even if the program is not asked to draw.
const untoldAtMost = 256

// follow draws the configurations for the rule's actions and records the ends among them for the program.
func (r *Ruled) follow(event tuner.Event, actions []tuner.Action) ([]tuner.Action, error) {
	actions = slices.Clone(actions)
	for i, action := range actions {
		switch a := action.(type) {
		case tuner.Create:
			drawn, err := r.draw(a)
			if err != nil {
				return nil, err
			}
			actions[i] = drawn
		case tuner.End:
			r.ended(a.Trial, false)
		}
	}
	return actions, r.validator.check(event, actions)
}

// draw replaces the configuration of a new trial. It keeps the rule's own configuration, which meets the constraints,
// if the program finds none that does.
func (r *Ruled) draw(a tuner.Create) (tuner.Create, error) {
	number := int32(unknown)
	for range maxTries {
		drawn, err := r.question(tuner.Ask{N: 1})
		if err != nil {
			return a, err
		}
		if len(drawn) != 1 {
			return a, fmt.Errorf("%s: was asked for one trial and returned no action", r.draws.Name())
		}
		create, ok := drawn[0].(tuner.Create)
		if !ok {
			return a, fmt.Errorf("%s: was asked for one trial and returned a %T", r.draws.Name(), drawn[0])
		}
		r.Next++
		if r.validator.space == nil || r.validator.space.Violated(create.Config) == "" {
			number, a.Config = r.Next-1, create.Config
			a.Reason += ", " + create.Reason
			break
		}
		r.untold = append(r.untold, tuner.Exited{Trial: tuner.Trial(r.Next - 1), Failed: true, Metric: math.NaN()})
	}
	if number == unknown {
		a.Reason += fmt.Sprintf(", at random: %d that the sampler drew do not meet the constraints", maxTries)
	}
	r.Numbers, r.Metrics, r.Steps = append(r.Numbers, number), append(r.Metrics, math.NaN()), append(r.Steps, 0)
	return a, nil
}

// note stores the newest metric of a trial and the additional metrics in the same report.
func (r *Ruled) note(t tuner.Trial, step int64, metric float64, metrics map[string]float64) {
	if math.IsNaN(metric) {
		return
	}
	r.Metrics[t], r.Steps[t] = metric, step
	for _, o := range r.objectives {
		value, ok := metrics[o.GetMetric()]
		if !ok {
			continue
		}
		if r.Objectives == nil {
			r.Objectives = map[tuner.Trial]map[string]float64{}
		}
		if r.Objectives[t] == nil {
			r.Objectives[t] = map[string]float64{}
		}
		r.Objectives[t][o.GetMetric()] = value
	}
}

func (r *Ruled) ended(t tuner.Trial, failed bool) {
	r.tell(t, func(n tuner.Trial) tuner.Event {
		return tuner.Exited{
			Trial: n, Step: r.Steps[t], Metric: r.Metrics[t], Failed: failed, Metrics: maps.Clone(r.Objectives[t]),
		}
	})
}

// tell adds an event of a trial to untold, if the program drew the trial.
func (r *Ruled) tell(t tuner.Trial, event func(tuner.Trial) tuner.Event) {
	if r.Numbers[t] != unknown {
		r.untold = append(r.untold, event(tuner.Trial(r.Numbers[t])))
	}
}

// question sends the untold events and a question to the program in one call, which is faster than several.
func (r *Ruled) question(last ...tuner.Event) ([]tuner.Action, error) {
	events := slices.Concat(r.untold, last)
	r.untold = nil
	if len(events) == 0 {
		return nil, nil
	}
	return r.draws.HandleAll(events...)
}

// Status implements tuner.Tuner.
func (r *Ruled) Status() tuner.Status { return r.rule.Status() }

// Outlook implements tuner.Tuner.
func (r *Ruled) Outlook() tuner.Outlook { return r.rule.Outlook() }

// Snapshot implements tuner.Tuner.
func (r *Ruled) Snapshot() ([]byte, error) {
	if _, err := r.question(); err != nil {
		return nil, err
	}
	kept := ruledEnvelope{Guard: r.validator.validatorState, State: r.ruledState}
	var err error
	if kept.Rule, err = r.rule.Snapshot(); err != nil {
		return nil, err
	}
	if kept.Draws, err = r.draws.Snapshot(); err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	if err := gob.NewEncoder(&buf).Encode(kept); err != nil {
		return nil, fmt.Errorf("encode a snapshot: %w", err)
	}
	return buf.Bytes(), nil
}

// Close stops the program.
func (r *Ruled) Close() { r.draws.Close() }

// A ruledEnvelope is a Ruled's snapshot.
type ruledEnvelope struct {
	Rule, Draws []byte
	Guard       validatorState
	State       ruledState
}
