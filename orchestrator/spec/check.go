package spec

import (
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	maxTrials   = 10_000_000
	maxDevices  = 4096
	maxRestarts = 1000
	maxText     = 64 << 10
)

// Check returns an *Error for the first problem of a spec, or nil if it may run. Default must have been called before.
func Check(s *outbidv1.SweepSpec) error {
	if err := checkNames(s); err != nil {
		return err
	}
	compiled, err := checkSpace(s)
	if err != nil {
		return err
	}
	for _, check := range []func(*outbidv1.SweepSpec) error{
		checkMetric, checkObjectives, checkLimits, checkUtility, checkResources, checkShare, checkBidder, checkCheckpoints, checkRestarts, checkPoints, checkMemory,
	} {
		if err := check(s); err != nil {
			return err
		}
	}
	if err := checkTuner(s, compiled); err != nil {
		return err
	}
	return checkWorkload(s, compiled)
}

func checkMemory(s *outbidv1.SweepSpec) error {
	if m := s.GetMemory(); m != "" && m != "on" && m != "off" {
		return wrong("memory", "%q is not valid; use on or off", m)
	}
	return nil
}

// isSlug reports whether a name has only lower-case letters, digits and dashes, and at most 42 of them.
func isSlug(name string) bool {
	return regexp.MustCompile(`^[a-z]([a-z0-9-]{0,40}[a-z0-9])?$`).MatchString(name)
}

func checkNames(s *outbidv1.SweepSpec) error {
	const right = "use lower-case letters, digits and dashes, start with a letter, end without a dash, 42 at most"
	switch {
	case s.GetName() == "":
		return wrong("name", "is missing; give the sweep a short name, such as digits")
	case !isSlug(s.GetName()):
		return wrong("name", "%q is not a valid name; %s", s.GetName(), right)
	case !isSlug(s.GetTenant()):
		return wrong("tenant", "%q is not a valid name of a tenant; %s", s.GetTenant(), right)
	}
	return checkLabels(s.GetLabels())
}

func checkLabels(labels map[string]string) error {
	if n := len(labels); n > limits.LabelCount {
		return wrong("labels", "at most %d labels are allowed, got %d", limits.LabelCount, n)
	}
	all := 0
	for _, name := range sortedKeys(labels) {
		if name == "" || len(name) > limits.LabelName {
			return wrong("labels", "%.80q is not a valid name of a label; use 1 to %d bytes", name, limits.LabelName)
		}
		if n := len(labels[name]); n > limits.Label {
			return wrong("labels."+name, "its value has %d bytes; at most %d are allowed", n, limits.Label)
		}
		all += len(name) + len(labels[name])
	}
	if all > limits.Labels {
		return wrong("labels", "names and values have %d bytes together; at most %d are allowed", all, limits.Labels)
	}
	return nil
}

func checkSpace(s *outbidv1.SweepSpec) (*space.Space, error) {
	if len(s.GetSpace()) == 0 && !drawsAlone(s) {
		return nil, wrong("space", "is missing or empty; name at least one parameter, such as "+
			"lr: {float: {low: 0.001, high: 0.1, log: true}}")
	}
	compiled, err := space.Compile(s.GetSpace(), s.GetConstraints())
	if err != nil {
		return nil, fromSpace(err)
	}
	return compiled, checkConfigSize(compiled)
}

// drawsAlone reports whether a plugin draws the sweep's configurations without a rule. It may then do without a space.
func drawsAlone(s *outbidv1.SweepSpec) bool {
	own := s.GetTuner().GetPlugin()
	return len(own.GetCommand()) > 0 && own.GetRule() == nil
}

func checkMetric(s *outbidv1.SweepSpec) error { return checkObjective("", s.GetMetric(), s.GetMode()) }

// maxObjectives is the maximum number of additional metrics to optimise: a front of more is of little use.
const maxObjectives = 9

func checkObjectives(s *outbidv1.SweepSpec) error {
	if n := len(s.GetObjectives()); n > maxObjectives {
		return wrong("objectives", "at most %d metrics are allowed in addition to %s, got %d", maxObjectives, s.GetMetric(), n)
	}
	seen := map[string]bool{s.GetMetric(): true}
	for i, o := range s.GetObjectives() {
		field := "objectives[" + itoa(i) + "]."
		if err := checkObjective(field, o.GetMetric(), o.GetMode()); err != nil {
			return err
		}
		if seen[o.GetMetric()] {
			return wrong(field+"metric", "%q is optimised already", o.GetMetric())
		}
		seen[o.GetMetric()] = true
	}
	return nil
}

// checkObjective checks a metric and its mode. around is the prefix of the field names in errors.
func checkObjective(around, metric, mode string) error {
	switch {
	case metric == "":
		return wrong(around+"metric", "is missing; name the reported value that is optimised, such as accuracy")
	case len(metric) > limits.Name:
		return wrong(around+"metric", "has %d bytes; at most %d are allowed", len(metric), limits.Name)
	case strings.ContainsFunc(metric, unicode.IsControl):
		return wrong(around+"metric", "%q has a control character; remove it", metric)
	case mode == "":
		return wrong(around+"mode", "is missing; write max if %s is better when higher, min if lower", metric)
	case mode != "max" && mode != "min":
		return wrong(around+"mode", "%q is unknown; use %s", mode, modeMeant(mode))
	}
	return nil
}

// modeMeant returns the mode that a similar word probably means, or both modes.
func modeMeant(word string) string {
	for mode, begins := range map[string]string{"max": "maxi", "min": "mini"} {
		if lower := strings.ToLower(word); lower == mode || strings.HasPrefix(lower, begins) {
			return mode
		}
	}
	return "max or min"
}

// checkUtility checks the utility of finishing a trial and the sweep's deadline.
func checkUtility(s *outbidv1.SweepSpec) error {
	if _, err := terms.UtilityOf(s.GetUtility()); err != nil {
		field, problem, _ := strings.Cut(err.Error(), ": ")
		return wrong(field, "%s", problem)
	}
	if _, _, err := terms.ParseDeadline(s.GetDeadline()); err != nil {
		return wrong("deadline", "%s", err)
	}
	return nil
}

func checkLimits(s *outbidv1.SweepSpec) error {
	l := s.GetLimits()
	switch {
	case l.GetTrials() < 0 || l.GetTrials() > maxTrials:
		return wrong("limits.trials", "must be from 0 (no limit) to %d, got %d", maxTrials, l.GetTrials())
	case l.GetConcurrency() < 0:
		return wrong("limits.concurrency", "%d is negative; use 0 for no limit", l.GetConcurrency())
	case l.GetSteps() < 0:
		return wrong("limits.steps", "%d is negative; use 0 for no limit", l.GetSteps())
	case l.Target != nil && (math.IsNaN(l.GetTarget()) || math.IsInf(l.GetTarget(), 0)):
		return wrong("limits.target", "%v is not a finite number", l.GetTarget())
	case !(l.GetDeviceHours() >= 0) || math.IsInf(l.GetDeviceHours(), 0):
		return wrong("limits.device_hours", "must be a finite number of at least 0 (no limit), got %v", l.GetDeviceHours())
	case !(l.GetCost() >= 0) || math.IsInf(l.GetCost(), 0):
		return wrong("limits.cost", "must be a finite number of at least 0 (no limit), got %v", l.GetCost())
	}
	return checkDuration("limits.wall_time", l.GetWallTime())
}

// checkDuration checks a duration that may be empty.
func checkDuration(field, text string) error {
	if text == "" {
		return nil
	}
	if _, err := terms.ParseDuration(text); err != nil {
		return wrong(field, "%v", err)
	}
	return nil
}

func checkCheckpoints(s *outbidv1.SweepSpec) error {
	if best := s.GetCheckpoints().GetBest(); best < 0 {
		return wrong("checkpoints.best", "must be at least 0, the number of trials whose checkpoints are kept, got %d", best)
	}
	return checkDuration("checkpoints.every", s.GetCheckpoints().GetEvery())
}

func checkRestarts(s *outbidv1.SweepSpec) error {
	if n := s.GetMaxRestarts(); n < 0 || n > maxRestarts {
		return wrong("max_restarts", "must be from 0 to %d, got %d", maxRestarts, n)
	}
	return checkDuration("hang_timeout", s.GetHangTimeout())
}

func checkWorkload(s *outbidv1.SweepSpec, compiled *space.Space) error {
	switch w := s.GetWorkload().(type) {
	case *outbidv1.SweepSpec_Function:
		return checkFunction(w.Function)
	case *outbidv1.SweepSpec_Program:
		return checkProgram(w.Program, compiled)
	case *outbidv1.SweepSpec_External:
		return checkDuration("external.timeout", w.External.GetTimeout())
	default:
		return wrong("program", "is missing; set what runs for each trial: program (or function, which the SDK sets, "+
			"or external)")
	}
}

func checkFunction(f *outbidv1.Function) error {
	if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(f.GetBlob()) {
		return wrong("function.blob", "%q is not a SHA-256 in hex; only the SDK can send functions, "+
			"so use program in a file", f.GetBlob())
	}
	if err := checkEnv("function.env", f.GetEnv()); err != nil {
		return err
	}
	return checkSecrets("function", f.GetEnv(), f.GetSecrets())
}

func checkProgram(p *outbidv1.Program, compiled *space.Space) error {
	switch {
	case len(p.GetCommand()) > 0 && p.GetShell() != "":
		return wrong("program.shell", "is set as well as command; use only one of them")
	case len(p.GetCommand()) == 0 && p.GetShell() == "":
		return wrong("program.command", "is missing; write the program and its arguments, such as "+
			"[python, train.py, --lr, '{lr}'], or use shell")
	case len(p.GetCommand()) > 0 && p.GetCommand()[0] == "":
		return wrong("program.command[0]", "is empty; the program's name comes first")
	case strings.Contains(p.GetWorkdir(), "\x00"):
		return wrong("program.workdir", "%q has a zero byte", p.GetWorkdir())
	}
	for i, arg := range p.GetCommand() {
		if err := checkTemplate("program.command["+itoa(i)+"]", arg, compiled); err != nil {
			return err
		}
	}
	if len(p.GetShell()) > maxText {
		return wrong("program.shell", "has %d bytes; at most %d are allowed, so move the text to a script", len(p.GetShell()), maxText)
	}
	if err := checkTemplate("program.shell", p.GetShell(), compiled); err != nil {
		return err
	}
	if err := checkEnv("program.env", p.GetEnv()); err != nil {
		return err
	}
	for _, name := range sortedKeys(p.GetEnv()) {
		if err := checkTemplate("program.env."+name, p.GetEnv()[name], compiled); err != nil {
			return err
		}
	}
	if err := checkSecrets("program", p.GetEnv(), p.GetSecrets()); err != nil {
		return err
	}
	return checkDuration("program.grace", p.GetGrace())
}

// checkEnv checks the names of variables, and that they are not among those that Outbid sets.
func checkEnv(field string, env map[string]string) error {
	valid := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	for _, name := range sortedKeys(env) {
		switch {
		case !valid.MatchString(name):
			return wrong(field, "%q is not a valid name of a variable; use letters, digits and _", name)
		case strings.HasPrefix(name, "OUTBID_") || name == "CUDA_VISIBLE_DEVICES":
			return wrong(field+"."+name, "is set by Outbid itself; use another name")
		case strings.Contains(env[name], "\x00"):
			return wrong(field+"."+name, "has a zero byte, which an environment cannot contain")
		}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
