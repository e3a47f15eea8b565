package spec

import (
	"math"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// maxRung is the maximum number of trials in a rung, to catch a mistyped max_steps.
const maxRung = 1_000_000

// checkTuner checks the tuner's settings, and then creates the tuner to check the rest.
func checkTuner(s *outbidv1.SweepSpec, compiled *space.Space) error {
	if err := checkSettings(s, compiled); err != nil || s.GetTuner().GetPlugin() != nil {
		return err
	}
	if _, err := tuner.New(tuner.Settings{Spec: s}); err != nil {
		return fromTuner(err)
	}
	return nil
}

func checkSettings(s *outbidv1.SweepSpec, compiled *space.Space) error {
	switch k := s.GetTuner().GetKind().(type) {
	case *outbidv1.Tuner_Random:
		return anyOf(optionalSteps("tuner.random", k.Random.GetMaxSteps()), needsEnd(s, "random"))
	case *outbidv1.Tuner_Sobol:
		return anyOf(optionalSteps("tuner.sobol", k.Sobol.GetMaxSteps()), needsEnd(s, "sobol"))
	case *outbidv1.Tuner_Bayes:
		return checkBayes(s, compiled)
	case *outbidv1.Tuner_Grid:
		return anyOf(optionalSteps("tuner.grid", k.Grid.GetMaxSteps()), checkGrid(k.Grid, compiled))
	case *outbidv1.Tuner_SuccessiveHalving:
		return checkHalving(k.SuccessiveHalving)
	case *outbidv1.Tuner_Hyperband:
		return checkHyperband(k.Hyperband)
	case *outbidv1.Tuner_Asha:
		return anyOf(checkAsha(k.Asha), needsEnd(s, "asha"))
	case *outbidv1.Tuner_Median:
		return anyOf(checkMedian(k.Median), needsEnd(s, "median"))
	case *outbidv1.Tuner_PerformanceCurve:
		return anyOf(checkPerformance(k.PerformanceCurve), needsEnd(s, "performance_curve"))
	case *outbidv1.Tuner_FreezeThaw:
		return anyOf(checkFreeze(k.FreezeThaw), needsEnd(s, "freeze_thaw"))
	case *outbidv1.Tuner_Pbt:
		return checkPbt(k.Pbt)
	case *outbidv1.Tuner_Plugin:
		return checkPlugin(s, k.Plugin, compiled)
	default:
		return wrong("tuner", "is missing; set one of random, grid, sobol, bayes, successive_halving, hyperband, asha, median, "+
			"performance_curve, freeze_thaw, pbt or plugin")
	}
}

func checkPlugin(s *outbidv1.SweepSpec, p *outbidv1.PluginTuner, compiled *space.Space) error {
	command := p.GetCommand()
	if len(command) == 0 && p.GetRule() == nil || len(command) > 0 && command[0] == "" {
		return wrong("tuner.plugin.command", "is missing; write the plugin's program and its arguments")
	}
	if err := optionalSteps("tuner.plugin", p.GetMaxSteps()); err != nil || p.GetRule() == nil {
		return err
	}
	switch p.GetRule().GetKind().(type) {
	case *outbidv1.Tuner_Random, *outbidv1.Tuner_SuccessiveHalving, *outbidv1.Tuner_Hyperband, *outbidv1.Tuner_Asha,
		*outbidv1.Tuner_Median, *outbidv1.Tuner_PerformanceCurve, *outbidv1.Tuner_FreezeThaw:
		return checkTuner(tuner.RuleSpec(s), compiled)
	default:
		return wrong("tuner.plugin.rule", "must be a tuner whose sampler can be replaced: random, successive_halving, hyperband, asha, median, "+
			"performance_curve or freeze_thaw")
	}
}

// anyOf returns the first error.
func anyOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func optionalSteps(field string, steps int64) error {
	if steps < 0 {
		return wrong(field+".max_steps", "%d is negative; use 0 to train until the code ends", steps)
	}
	return nil
}

// needsEnd requires a limit that ends a sweep whose tuner would otherwise draw trials forever.
func needsEnd(s *outbidv1.SweepSpec, kind string) error {
	l := s.GetLimits()
	if l.GetTrials() > 0 || l.GetSteps() > 0 || l.GetWallTime() != "" || l.Target != nil {
		return nil
	}
	return wrong("limits.trials", "is missing; a sweep with %s needs a limit: trials, steps, wall_time or target", kind)
}

func checkGrid(g *outbidv1.GridSearch, compiled *space.Space) error {
	if g.GetPoints() < 1 {
		return wrong("tuner.grid.points", "must be at least 1, got %d", g.GetPoints())
	}
	if _, err := compiled.GridSize(int(g.GetPoints())); err != nil {
		return fromSpace(err)
	}
	return nil
}

// checkRungs checks the settings that all forms of successive halving share.
func checkRungs(field string, maxSteps, minSteps int64, eta int32, sampler string) error {
	switch {
	case maxSteps <= 0:
		return wrong(field+".max_steps", "%s; set the number of steps of the longest trials", missing(maxSteps))
	case minSteps < 1:
		return wrong(field+".min_steps", "must be at least 1, got %d", minSteps)
	case minSteps > maxSteps:
		return wrong(field+".min_steps", "%d is above max_steps (%d)", minSteps, maxSteps)
	case eta < 2:
		return wrong(field+".eta", "must be at least 2, got %d; a rung keeps 1 of eta trials", eta)
	}
	return checkSampler(field, sampler)
}

// missing describes a number that must be above 0.
func missing(n int64) string {
	if n == 0 {
		return "is missing"
	}
	return itoa(int(n)) + " is not above 0"
}

func checkSampler(field, sampler string) error {
	if sampler != "random" && sampler != "sobol" {
		return wrong(field+".sampler", "%q is unknown; use random, sobol, tpe, gp, cmaes or nsga2", sampler)
	}
	return nil
}

// rungs returns the number of rungs between min and max steps: floor(log_eta(max/min)) + 1.
func rungs(maxSteps, minSteps int64, eta int32) int {
	n := 1
	for steps := minSteps; steps <= maxSteps/int64(eta); steps *= int64(eta) {
		n++
	}
	return n
}

func checkHalving(h *outbidv1.SuccessiveHalving) error {
	const field = "tuner.successive_halving"
	if err := checkRungs(field, h.GetMaxSteps(), h.GetMinSteps(), h.GetEta(), h.GetSampler()); err != nil {
		return err
	}
	if h.GetTrials() < 0 || h.GetTrials() > maxRung {
		return wrong(field+".trials", "must be from 1 to %d, or 0 for eta^(rungs-1), got %d", maxRung, h.GetTrials())
	}
	if h.GetTrials() == 0 {
		return firstRung(field, h.GetMaxSteps(), h.GetMinSteps(), h.GetEta())
	}
	return nil
}

// firstRung rejects a first rung of too many trials.
func firstRung(field string, maxSteps, minSteps int64, eta int32) error {
	if n := math.Pow(float64(eta), float64(rungs(maxSteps, minSteps, eta)-1)); n > maxRung {
		return wrong(field+".min_steps", "%d up to max_steps %d makes a first rung of %.0f trials, more than %d; raise it",
			minSteps, maxSteps, n, maxRung)
	}
	return nil
}

func checkHyperband(h *outbidv1.Hyperband) error {
	const field = "tuner.hyperband"
	if err := checkRungs(field, h.GetMaxSteps(), h.GetMinSteps(), h.GetEta(), h.GetSampler()); err != nil {
		return err
	}
	if h.GetIterations() < 1 || h.GetIterations() > maxRung {
		return wrong(field+".iterations", "must be from 1 to %d, got %d", maxRung, h.GetIterations())
	}
	return firstRung(field, h.GetMaxSteps(), h.GetMinSteps(), h.GetEta())
}

func checkAsha(a *outbidv1.Asha) error {
	const field = "tuner.asha"
	if err := checkRungs(field, a.GetMaxSteps(), a.GetMinSteps(), a.GetEta(), a.GetSampler()); err != nil {
		return err
	}
	if a.GetForm() != "promote" && a.GetForm() != "stop" {
		return wrong(field+".form", "%q is unknown; use promote or stop", a.GetForm())
	}
	if most := rungs(a.GetMaxSteps(), a.GetMinSteps(), a.GetEta()); a.GetBrackets() < 1 || int(a.GetBrackets()) > most {
		return wrong(field+".brackets", "must be from 1 to %d, the number of rungs, got %d", most, a.GetBrackets())
	}
	return nil
}

func checkMedian(m *outbidv1.MedianStopping) error {
	const field = "tuner.median"
	switch {
	case m.GetMaxSteps() <= 0:
		return wrong(field+".max_steps", "%s; set the number of steps of a trial", missing(m.GetMaxSteps()))
	case m.GetGraceSteps() < 1:
		return wrong(field+".grace_steps", "must be at least 1, got %d", m.GetGraceSteps())
	case m.GetMinTrials() < 1:
		return wrong(field+".min_trials", "must be at least 1, got %d", m.GetMinTrials())
	}
	return checkSampler(field, m.GetSampler())
}

func checkPerformance(p *outbidv1.PerformanceCurve) error {
	const field = "tuner.performance_curve"
	switch most := p.GetMaxSteps(); {
	case most <= 0:
		return wrong(field+".max_steps", "%s; set the maximum number of steps of a trial", missing(most))
	case p.GetInterval() < 0 || p.GetInterval() > most:
		return wrong(field+".interval", "must be from 1 to max_steps (%d), or 0 for a twentieth of it, got %d", most, p.GetInterval())
	case p.GetGraceSteps() < 0 || p.GetGraceSteps() > most:
		return wrong(field+".grace_steps", "must be from 1 to max_steps (%d), or 0 for two intervals, got %d", most, p.GetGraceSteps())
	case !(p.GetPoor() > 0 && p.GetPoor() < 1):
		return wrong(field+".poor", "must be a probability above 0 and below 1, got %v; 0.05 is usual", p.GetPoor())
	case !(p.GetKeep() >= 0 && p.GetKeep() <= 1):
		return wrong(field+".keep", "must be a share from 0 to 1, got %v; 0.1 is usual", p.GetKeep())
	case p.GetEta() < 2:
		return wrong(field+".eta", "must be at least 2, got %d; the rank rule stops 1 of eta trials", p.GetEta())
	}
	return checkSampler(field, p.GetSampler())
}

func checkFreeze(p *outbidv1.FreezeThaw) error {
	const field = "tuner.freeze_thaw"
	switch most := p.GetMaxSteps(); {
	case most <= 0:
		return wrong(field+".max_steps", "%s; set the maximum number of steps of a trial", missing(most))
	case p.GetMinSteps() < 0 || p.GetMinSteps() > most:
		return wrong(field+".min_steps", "must be from 1 to max_steps (%d), or 0 for a 40th of it, got %d", most, p.GetMinSteps())
	case !(p.GetPoor() > 0 && p.GetPoor() < 1):
		return wrong(field+".poor", "must be a probability above 0 and below 1, got %v; 0.01 is usual", p.GetPoor())
	}
	switch p.GetSampler() {
	case "model", "random", "sobol":
		return nil
	default:
		return wrong(field+".sampler", "%q is unknown; use model, random, sobol, tpe, gp, cmaes or nsga2", p.GetSampler())
	}
}

func checkPbt(p *outbidv1.Pbt) error {
	const field = "tuner.pbt"
	switch {
	case p.GetMaxSteps() <= 0:
		return wrong(field+".max_steps", "%s; set the number of steps of a member", missing(p.GetMaxSteps()))
	case p.GetPopulation() < 2 || p.GetPopulation() > maxRung:
		return wrong(field+".population", "must be from 2 to %d, got %d", maxRung, p.GetPopulation())
	case p.GetInterval() <= 0:
		return wrong(field+".interval", "%s; set the number of steps after which members are compared", missing(p.GetInterval()))
	case p.GetInterval() > p.GetMaxSteps():
		return wrong(field+".interval", "%d is above max_steps (%d)", p.GetInterval(), p.GetMaxSteps())
	case !(p.GetQuantile() > 0 && p.GetQuantile() <= 0.5):
		return wrong(field+".quantile", "must be above 0 and at most 0.5, got %v", p.GetQuantile())
	case !(p.GetResample() >= 0 && p.GetResample() <= 1):
		return wrong(field+".resample", "must be a probability from 0 to 1, got %v", p.GetResample())
	}
	for i, f := range p.GetFactors() {
		if !(f > 0) || math.IsInf(f, 0) {
			return wrong(field+".factors["+itoa(i)+"]", "must be above 0, got %v", f)
		}
	}
	return nil
}
