package remote

import (
	"errors"
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// ToEvent converts an event to a message.
func ToEvent(event tuner.Event) (*outbidv1.TunerEvent, error) {
	switch e := event.(type) {
	case tuner.Ask:
		return &outbidv1.TunerEvent{Kind: &outbidv1.TunerEvent_Ask{Ask: int32(e.N)}}, nil
	case tuner.Reported:
		return &outbidv1.TunerEvent{Kind: &outbidv1.TunerEvent_Reported{Reported: &outbidv1.TunerReport{
			Trial: int32(e.Trial), Step: e.Step, Metric: e.Metric, Metrics: e.Metrics,
		}}}, nil
	case tuner.Reached:
		return &outbidv1.TunerEvent{Kind: &outbidv1.TunerEvent_Reached{Reached: &outbidv1.TunerReport{
			Trial: int32(e.Trial), Step: e.Step, Metric: e.Metric, Metrics: e.Metrics,
		}}}, nil
	case tuner.Exited:
		state := outbidv1.TrialState_TRIAL_STATE_COMPLETED
		if e.Failed {
			state = outbidv1.TrialState_TRIAL_STATE_FAILED
		}
		return &outbidv1.TunerEvent{Kind: &outbidv1.TunerEvent_Exited{Exited: &outbidv1.TunerExit{
			Trial: int32(e.Trial), Step: e.Step, State: state, Metric: e.Metric, Metrics: e.Metrics,
		}}}, nil
	case tuner.Extended:
		return &outbidv1.TunerEvent{Kind: &outbidv1.TunerEvent_Extended{Extended: e.Settings.Spec}}, nil
	default:
		return nil, fmt.Errorf("unknown event %T", event)
	}
}

// FromEvent converts a message to an event.
func FromEvent(m *outbidv1.TunerEvent) (tuner.Event, error) {
	switch e := m.GetKind().(type) {
	case *outbidv1.TunerEvent_Ask:
		return tuner.Ask{N: int(e.Ask)}, nil
	case *outbidv1.TunerEvent_Reported:
		return tuner.Reported{
			Trial: tuner.Trial(e.Reported.GetTrial()), Step: e.Reported.GetStep(), Metric: e.Reported.GetMetric(),
			Metrics: e.Reported.GetMetrics(),
		}, nil
	case *outbidv1.TunerEvent_Reached:
		return tuner.Reached{
			Trial: tuner.Trial(e.Reached.GetTrial()), Step: e.Reached.GetStep(), Metric: e.Reached.GetMetric(),
			Metrics: e.Reached.GetMetrics(),
		}, nil
	case *outbidv1.TunerEvent_Exited:
		return tuner.Exited{
			Trial: tuner.Trial(e.Exited.GetTrial()), Step: e.Exited.GetStep(), Metric: e.Exited.GetMetric(),
			Failed: e.Exited.GetState() == outbidv1.TrialState_TRIAL_STATE_FAILED, Metrics: e.Exited.GetMetrics(),
		}, nil
	case *outbidv1.TunerEvent_Extended:
		return tuner.Extended{Settings: tuner.Settings{Spec: e.Extended}}, nil
	default:
		return nil, errors.New("event: its kind is unknown or not set")
	}
}

// ToAction converts an action to a message.
func ToAction(action tuner.Action) (*outbidv1.TunerAction, error) {
	switch a := action.(type) {
	case tuner.Create:
		config, err := space.Canonical(a.Config)
		return &outbidv1.TunerAction{Reason: a.Reason, Kind: &outbidv1.TunerAction_Create{Create: &outbidv1.TunerCreate{
			ConfigJson: config, UntilStep: a.UntilStep, Bracket: int32(a.Bracket), Seed: a.Seed,
		}}}, err
	case tuner.Train:
		return &outbidv1.TunerAction{Reason: a.Reason, Kind: &outbidv1.TunerAction_Train{Train: &outbidv1.TunerTrain{
			Trial: int32(a.Trial), UntilStep: a.UntilStep,
		}}}, nil
	case tuner.Pause:
		return &outbidv1.TunerAction{Reason: a.Reason, Kind: &outbidv1.TunerAction_Pause{Pause: &outbidv1.TunerPause{
			Trial: int32(a.Trial),
		}}}, nil
	case tuner.End:
		state := outbidv1.TrialState_TRIAL_STATE_STOPPED
		if a.Completed {
			state = outbidv1.TrialState_TRIAL_STATE_COMPLETED
		}
		return &outbidv1.TunerAction{Reason: a.Reason, Kind: &outbidv1.TunerAction_End{End: &outbidv1.TunerEnd{
			Trial: int32(a.Trial), State: state,
		}}}, nil
	case tuner.Clone:
		config, err := space.Canonical(a.Config)
		return &outbidv1.TunerAction{Reason: a.Reason, Kind: &outbidv1.TunerAction_Clone{Clone: &outbidv1.TunerClone{
			Trial: int32(a.Trial), Source: int32(a.Source), ConfigJson: config, UntilStep: a.UntilStep,
		}}}, err
	default:
		return nil, fmt.Errorf("unknown action %T", action)
	}
}

// FromAction converts a message to an action.
func FromAction(m *outbidv1.TunerAction) (tuner.Action, error) {
	reason := m.GetReason()
	if reason == "" {
		reason = "the plugin gave no reason"
	}
	switch a := m.GetKind().(type) {
	case *outbidv1.TunerAction_Create:
		config, err := space.Parse(a.Create.GetConfigJson())
		return tuner.Create{
			Config: config, UntilStep: a.Create.GetUntilStep(), Bracket: int(a.Create.GetBracket()),
			Seed: a.Create.GetSeed(), Reason: reason,
		}, err
	case *outbidv1.TunerAction_Train:
		return tuner.Train{
			Trial: tuner.Trial(a.Train.GetTrial()), UntilStep: a.Train.GetUntilStep(), Reason: reason,
		}, nil
	case *outbidv1.TunerAction_Pause:
		return tuner.Pause{Trial: tuner.Trial(a.Pause.GetTrial()), Reason: reason}, nil
	case *outbidv1.TunerAction_End:
		state := a.End.GetState()
		completed := state == outbidv1.TrialState_TRIAL_STATE_COMPLETED
		if !completed && state != outbidv1.TrialState_TRIAL_STATE_STOPPED {
			return nil, fmt.Errorf("ends trial %d as %v; use COMPLETED or STOPPED", a.End.GetTrial(), state)
		}
		return tuner.End{Trial: tuner.Trial(a.End.GetTrial()), Completed: completed, Reason: reason}, nil
	case *outbidv1.TunerAction_Clone:
		config, err := space.Parse(a.Clone.GetConfigJson())
		return tuner.Clone{
			Trial: tuner.Trial(a.Clone.GetTrial()), Source: tuner.Trial(a.Clone.GetSource()), Config: config,
			UntilStep: a.Clone.GetUntilStep(), Reason: reason,
		}, err
	default:
		return nil, errors.New("action: its kind is unknown or not set")
	}
}
