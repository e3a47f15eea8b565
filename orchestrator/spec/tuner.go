package spec

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/setting"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// checkTuner checks the tuner's settings, and then creates the tuner to check the rest.
func checkTuner(s *outbidv1.SweepSpec, compiled *space.Space) error {
	if err := registry.CheckSettings(s.GetTuner(), compiled); err != nil {
		return fromTuner(err)
	}
	if own := s.GetTuner().GetPlugin(); own != nil {
		return checkPlugin(s, own, compiled)
	}
	if err := needsEnd(s); err != nil {
		return err
	}
	if _, err := registry.New(tuner.Settings{Spec: s}); err != nil {
		return fromTuner(err)
	}
	return nil
}

func checkPlugin(s *outbidv1.SweepSpec, p *outbidv1.PluginTuner, compiled *space.Space) error {
	command := p.GetCommand()
	if len(command) == 0 && p.GetRule() == nil || len(command) > 0 && command[0] == "" {
		return wrong("tuner.plugin.command", "is missing; write the plugin's program and its arguments")
	}
	if p.GetRule() == nil {
		return nil
	}
	if !slices.Contains(registry.RuleNames(), tuner.NameOf(p.GetRule())) {
		return wrong("tuner.plugin.rule", "must be a tuner whose sampler can be replaced: %s", setting.List(registry.RuleNames()))
	}
	return checkTuner(tuner.RuleSpec(s), compiled)
}

// needsEnd requires a limit that ends a sweep whose tuner would otherwise draw trials forever.
func needsEnd(s *outbidv1.SweepSpec) error {
	name, l := tuner.NameOf(s.GetTuner()), s.GetLimits()
	if !registry.TraitsOf(name).Endless || l.GetTrials() > 0 || l.GetSteps() > 0 || l.GetWallTime() != "" || l.GetDeviceHours() > 0 || l.GetCost() > 0 || l.Target != nil {
		return nil
	}
	return wrong("limits.trials", "is missing; a sweep with %s needs a limit: trials, steps, wall_time, device_hours, cost or target", name)
}
