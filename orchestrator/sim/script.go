package sim

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Script runs a scheduling scenario: one command on each line, comments after '#', times since the start. Trials do
// only what the script orders. The commands:
//
//	gpus N                          a node n1 with N devices of type gpu
//	node NAME TYPE:N                a node
//	submit NAME TUNER [key=value…]  a sweep; its trials are then NAME/0, NAME/1, …
//	at DURATION                     let time pass until then
//	report TRIAL step=N NAME=VALUE  a trial does steps up to N and reports; at its target it says so and waits
//	save TRIAL                      its process saves, and the checkpoint is in the store
//	fail TRIAL [WHY]                its process fails; WHY is damaged if it cannot read its checkpoint
//	finish TRIAL                    its code ends
//	pause|resume|stop NAME          a person's command
//	crash orchestrator|NODE         the orchestrator has restarted, or the node is gone, at the next line
//	boot NODE                       the node comes back
//	expect TRIAL STATE [on NODE]    queued, running, paused, completed, stopped, failed, cancelled
//	expect TRIAL from N             the step that its next process starts from, or that its newest started from
//	expect NAME STATE               running, paused, stopping, done, stopped, failed
//	expect free N                   the number of free devices
//
// Any command may follow "at DURATION" on the same line. An error names the line.
func Script(w *World, r io.Reader) error {
	p := &script{w: w, names: map[string]string{}}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if err := p.run(strings.Fields(text)); err != nil {
			return fmt.Errorf("line %d: %s: %w", n, strings.TrimSpace(text), err)
		}
	}
	return lines.Err()
}

type script struct {
	w     *World
	names map[string]string
}

var errScript = errors.New("unknown command or wrong number of arguments; see the documentation of sim.Script")

func (p *script) run(words []string) error {
	if len(words) == 0 {
		return nil
	}
	if words[0] == "at" && len(words) >= 2 {
		d, err := time.ParseDuration(words[1])
		if err != nil {
			return err
		}
		if err := p.w.RunUntil(p.w.start.Add(d)); err != nil {
			return err
		}
		return p.run(words[2:])
	}
	if err := p.command(words); err != nil {
		return err
	}
	// Let messages arrive before the next line.
	return p.w.RunUntil(p.w.Now().Add(600 * time.Millisecond))
}

// command runs the command of one line.
func (p *script) command(words []string) error {
	type action struct {
		least, most int
		do          func(args []string) error
	}
	const any = 1 << 10
	actions := map[string]action{
		"gpus":   {1, 1, func(a []string) error { return p.node("n1", "gpu:"+a[0]) }},
		"node":   {2, 2, func(a []string) error { return p.node(a[0], a[1]) }},
		"submit": {2, any, func(a []string) error { return p.submit(a[0], a[1], a[2:]) }},
		"report": {3, 3, func(a []string) error { return p.report(a[0], a[1], a[2]) }},
		"save":   {1, 1, func(a []string) error { return p.save(a[0]) }},
		"fail":   {1, 2, func(a []string) error { return p.end(strings.Join(append([]string{"fail"}, a[1:]...), " "), a[0]) }},
		"finish": {1, 1, func(a []string) error { return p.end("finish", a[0]) }},
		"pause":  {1, 1, func(a []string) error { return p.ask("pause", a[0]) }},
		"resume": {1, 1, func(a []string) error { return p.ask("resume", a[0]) }},
		"stop":   {1, 1, func(a []string) error { return p.ask("stop", a[0]) }},
		"crash":  {1, 1, func(a []string) error { return p.crash(a[0]) }},
		"boot":   {1, 1, func(a []string) error { return p.boot(a[0]) }},
		"expect": {2, 4, p.expect},
	}
	known, ok := actions[words[0]]
	args := words[1:]
	if !ok || len(args) < known.least || len(args) > known.most {
		return errScript
	}
	return known.do(args)
}

func (p *script) boot(name string) error {
	k := p.w.workers[name]
	if k == nil {
		return errScript
	}
	k.boot()
	return nil
}

func (p *script) node(name, devices string) error {
	kind, count, ok := strings.Cut(devices, ":")
	n, err := strconv.Atoi(count)
	if !ok || err != nil {
		return errScript
	}
	p.w.AddNode(name, kind, n, 1)
	return nil
}

func (p *script) crash(who string) error {
	if who == "orchestrator" {
		p.w.crashBetween()
		return p.w.err
	}
	k := p.w.workers[who]
	if k == nil {
		return errScript
	}
	k.crash()
	return nil
}

func (p *script) ask(what, name string) error {
	var failed error
	command := map[string]outbidv1.SweepCommand{
		"pause":  outbidv1.SweepCommand_SWEEP_COMMAND_PAUSE,
		"resume": outbidv1.SweepCommand_SWEEP_COMMAND_RESUME,
		"stop":   outbidv1.SweepCommand_SWEEP_COMMAND_STOP,
	}[what]
	p.w.Do(control.Command{Sweep: p.names[name], Command: command, Actor: "script", Done: func(err error) { failed = err }})
	return failed
}

// trial returns a trial.
func (p *script) trial(name string) (*state.Trial, error) {
	sweep, number, _ := strings.Cut(name, "/")
	n, err := strconv.Atoi(number)
	if err != nil {
		return nil, errScript
	}
	s, err := p.w.State().Sweep(p.names[sweep])
	if err != nil {
		return nil, err
	}
	return s.Trial(int32(n))
}

// fork returns the process of a running trial.
func (p *script) fork(name string) (*fork, error) {
	t, err := p.trial(name)
	if err != nil {
		return nil, err
	}
	if t.Lead() != nil {
		if f := p.w.workers[t.Lead().Rank0()].forks[t.Lead().ID]; f != nil {
			return f, nil
		}
	}
	return nil, errors.New("it does not run")
}

func (p *script) report(name, step, metric string) error {
	f, err := p.fork(name)
	if err != nil {
		return err
	}
	n, err1 := strconv.ParseInt(strings.TrimPrefix(step, "step="), 10, 64)
	key, value, _ := strings.Cut(metric, "=")
	v, err2 := strconv.ParseFloat(value, 64)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	f.scripted(n, key, v)
	return nil
}

func (p *script) save(name string) error {
	f, err := p.fork(name)
	if err != nil {
		return err
	}
	if save := f.keep(f.step); save != nil {
		f.k.say(save)
	}
	return nil
}

func (p *script) end(how, name string) error {
	f, err := p.fork(name)
	if err != nil {
		return err
	}
	switch how {
	case "finish":
		f.finish()
	case "fail damaged":
		f.fail(outbidv1.FailureKind_FAILURE_KIND_CHECKPOINT, "the script says so damaged")
	default:
		f.fail(outbidv1.FailureKind_FAILURE_KIND_ERROR, "the script says so"+strings.TrimPrefix(how, "fail"))
	}
	return nil
}

func (p *script) expect(words []string) error {
	if words[0] == "free" {
		free := 0
		for _, n := range p.w.State().Nodes {
			free += len(n.FreeDevices())
		}
		if strconv.Itoa(free) != words[1] {
			return fmt.Errorf("%d are free", free)
		}
		return nil
	}
	if !strings.Contains(words[0], "/") {
		s, err := p.w.State().Sweep(p.names[words[0]])
		if err == nil && state.SweepWord(s.State) != words[1] {
			err = fmt.Errorf("it is %s: %s", state.SweepWord(s.State), s.Reason)
		}
		return err
	}
	t, err := p.trial(words[0])
	switch {
	case err != nil:
		return err
	case words[1] == "from":
		if from := startOf(t); len(words) != 3 || strconv.FormatInt(from, 10) != words[2] {
			return fmt.Errorf("it starts from %d", from)
		}
		return nil
	case state.TrialWord(t.State) != words[1]:
		return fmt.Errorf("it is %s: %s", state.TrialWord(t.State), t.Reason)
	case len(words) == 4 && words[2] == "on" && (t.Lead() == nil || t.Lead().Rank0() != words[3]):
		return fmt.Errorf("its lease is %+v", t.Lead())
	default:
		return nil
	}
}

// startOf returns the step that a trial's process started from, or will start from.
func startOf(t *state.Trial) int64 {
	if t.Lead() != nil && t.Lead().Started {
		return t.Lead().FromStep
	}
	return t.From().GetStep()
}

// submit submits a sweep with a tuner given by name and settings.
func (p *script) submit(name, tunerName string, settings []string) error {
	values := map[string]int64{}
	mode := "min"
	for _, s := range settings {
		key, text, _ := strings.Cut(s, "=")
		if key == "mode" {
			mode = text
			continue
		}
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		values[key] = v
	}
	spec := Sweep(name, mode, int32(values["trials"]), Tuner(tunerName, values))
	spec.Limits.Concurrency = int32(values["concurrency"])
	restarts := int32(3)
	if v, ok := values["restarts"]; ok {
		restarts = int32(v)
	}
	spec.MaxRestarts = &restarts
	if n := int32(values["devices"]); n > 0 {
		spec.Resources.Devices = &outbidv1.DeviceCount{Min: n, Max: n}
	}
	id, err := p.w.Submit(spec)
	p.names[name] = id
	return err
}

// Sweep returns a sweep over two parameters that reports "loss".
func Sweep(name, mode string, trials int32, t *outbidv1.Tuner) *outbidv1.SweepSpec {
	restarts := int32(1000)
	return &outbidv1.SweepSpec{
		Name: name, Tenant: "default", Metric: "loss", Mode: mode, Tuner: t, MaxRestarts: &restarts,
		Space: map[string]*outbidv1.Parameter{
			"lr":    {Kind: &outbidv1.Parameter_Float{Float: &outbidv1.FloatRange{Low: 1e-4, High: 1, Log: true}}},
			"width": {Kind: &outbidv1.Parameter_Int{Int: &outbidv1.IntRange{Low: 1, High: 512, Log: true}}},
		},
		Resources:   &outbidv1.Resources{Devices: &outbidv1.DeviceCount{Min: 1, Max: 1}},
		Limits:      &outbidv1.Limits{Trials: trials},
		Checkpoints: &outbidv1.Checkpoints{Best: 1},
		Workload:    &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{Command: []string{"train", "{lr}"}}},
	}
}

// Tuner returns a tuner with settings such as max_steps and eta.
func Tuner(name string, v map[string]int64) *outbidv1.Tuner {
	t := &outbidv1.Tuner{Seed: new(uint64(v["seed"]))}
	steps, eta, least := v["max_steps"], int32(v["eta"]), v["min_steps"]
	switch name {
	case "asha", "asha-stop":
		form := "promote"
		if name == "asha-stop" {
			form = "stop"
		}
		t.Kind = &outbidv1.Tuner_Asha{Asha: &outbidv1.Asha{MaxSteps: steps, Eta: eta, MinSteps: least, Form: form}}
	case "halving":
		t.Kind = &outbidv1.Tuner_SuccessiveHalving{SuccessiveHalving: &outbidv1.SuccessiveHalving{
			MaxSteps: steps, Eta: eta, MinSteps: least, Trials: int32(v["trials"]),
		}}
	case "hyperband":
		t.Kind = &outbidv1.Tuner_Hyperband{Hyperband: &outbidv1.Hyperband{MaxSteps: steps, Eta: eta, MinSteps: least}}
	case "median":
		t.Kind = &outbidv1.Tuner_Median{Median: &outbidv1.MedianStopping{MaxSteps: steps}}
	case "performance":
		t.Kind = &outbidv1.Tuner_PerformanceCurve{PerformanceCurve: &outbidv1.PerformanceCurve{MaxSteps: steps, Eta: eta}}
	case "pbt":
		t.Kind = &outbidv1.Tuner_Pbt{Pbt: &outbidv1.Pbt{MaxSteps: steps, Interval: max(1, steps/4), Population: int32(v["trials"])}}
	default:
		t.Kind = &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{MaxSteps: steps}}
	}
	return t
}
