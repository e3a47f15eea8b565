// Package papers offers the workloads and clusters of papers by name. Package generate makes the workloads.
package papers

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/lab/generate"
	"github.com/outbid-dev/outbid/orchestrator/sim/workload"
	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// Maker is a generator of workloads.
type Maker struct {
	Name, Help string
	// Settings are its settings with their defaults.
	Settings []Setting
}

// Setting is a setting of a maker.
type Setting struct{ Name, Default, Help string }

// maker generates a workload from settings and a base trace, which may be nil.
type maker struct {
	help string
	read reader
}

// reader reads a maker's settings, and returns a function that makes the workload with them.
type reader func(r workload.Request, s *settings, base *trace.Trace) making

type making func() (*trace.Trace, error)

func makers() map[string]maker {
	return map[string]maker{
		"gavel":            {"Gavel's generator: whole hours, gangs of 1, 2 and 4; needs --throughputs", gavel(false)},
		"gavel-continuous": {"Gavel's continuous experiments: Philly's run times, gangs up to 8; needs --throughputs", gavel(true)},
		"themis-1":         {"Themis's workload 1: explorations of jobs of 1 or 2 devices; arrivals of --trace if given", themis(false)},
		"themis-2":         {"Themis's workload 2: explorations by successive halving, more devices a job; arrivals of --trace if given", themis(true)},
		"hadar":            {"Hadar's 480 jobs; needs --throughputs; from --trace (Philly) if given", hadar},
		"hadare":           {"a mix of HadarE, M-1 to M-12, for hadare-aws and hadare-lab; --throughputs if given", hadare},
		"oasis":            {"OASiS's jobs with utilities", oasis},
		"ogasched":         {"OGASched's ports as jobs of one kind of resource", ogasched},
		"astraea-philly":   {"ASTRAEA's two weeks of Philly; needs --trace", astraea(generate.ASTRAEAPhilly)},
		"astraea-venus":    {"ASTRAEA's two weeks of Venus; needs --trace", astraea(generate.ASTRAEAVenus)},
		"venus-like":       {"ASTRAEA's two weeks of Venus, made by the figures that its paper publishes of them", venus},
	}
}

// Names lists the makers, sorted.
func Names() []string { return slices.Sorted(maps.Keys(makers())) }

// Makers describes the makers, sorted by name.
func Makers() []Maker {
	var out []Maker
	for _, name := range Names() {
		s := &settings{}
		makers()[name].read(workload.Request{}, s, nil)
		out = append(out, Maker{Name: name, Help: makers()[name].help, Settings: s.known})
	}
	return out
}

// Workload names a maker, and its settings NAME=VALUE.
type Workload struct {
	Name    string
	Options []string
}

// Request adds the maker to a request, whose trace then is the maker's base. Without a maker it returns the request.
func (m Workload) Request(r workload.Request) (workload.Request, error) {
	if m.Name == "" {
		if len(m.Options) > 0 {
			return r, fmt.Errorf("--made-option %s: these are settings of a maker: give --made too", m.Options[0])
		}
		return r, nil
	}
	r.Generate = m.generate
	return r, nil
}

func (m Workload) generate(r workload.Request, base *trace.Trace) (*trace.Trace, error) {
	maker, ok := makers()[m.Name]
	if !ok {
		return nil, fmt.Errorf("--made %s: there is no such maker; there are %s", m.Name, strings.Join(Names(), ", "))
	}
	s := &settings{values: map[string]string{}}
	for _, pair := range m.Options {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--made-option %s: want NAME=VALUE", pair)
		}
		if _, twice := s.values[name]; twice {
			return nil, fmt.Errorf("--made-option %s is given twice", name)
		}
		s.values[name] = value
	}
	run := maker.read(r, s, base)
	if bad := s.bad(m.Name); bad != nil {
		return nil, bad
	}
	t, err := run()
	if err != nil && errors.Is(err, errTable) {
		return nil, fmt.Errorf("--made %s: its jobs are measured in steps: give --throughputs FILE", m.Name)
	}
	if errors.Is(err, errBase) {
		return nil, fmt.Errorf("--made %s: give the cluster's whole trace as --trace FILE", m.Name)
	}
	return t, err
}

var (
	errTable = errors.New("a table of throughputs is missing")
	errBase  = errors.New("the cluster's whole trace is missing")
)

// settings reads a maker's settings: the maker requests each with its default, and settings that were not requested are
// an error.
type settings struct {
	values map[string]string
	known  []Setting
	err    error
}

func (s *settings) take(name, def, help string) (string, bool) {
	s.known = append(s.known, Setting{name, def, help})
	value, ok := s.values[name]
	return value, ok
}

func (s *settings) float(name string, def float64, help string) float64 {
	text, ok := s.take(name, strconv.FormatFloat(def, 'g', -1, 64), help)
	if !ok {
		return def
	}
	v, err := strconv.ParseFloat(text, 64)
	if (err != nil || math.IsNaN(v) || math.IsInf(v, 0)) && s.err == nil {
		s.err = fmt.Errorf("--made-option %s=%s: want a number", name, text)
	}
	return v
}

func (s *settings) whole(name string, def int, help string) int {
	text, ok := s.take(name, strconv.Itoa(def), help)
	if !ok {
		return def
	}
	v, err := strconv.Atoi(text)
	if err != nil && s.err == nil {
		s.err = fmt.Errorf("--made-option %s=%s: want a whole number", name, text)
	}
	return v
}

func (s *settings) yes(name string, def bool, help string) bool {
	text, ok := s.take(name, strconv.FormatBool(def), help)
	if !ok {
		return def
	}
	v, err := strconv.ParseBool(text)
	if err != nil && s.err == nil {
		s.err = fmt.Errorf("--made-option %s=%s: want true or false", name, text)
	}
	return v
}

func (s *settings) text(name, def, help string) string {
	if text, ok := s.take(name, def, help); ok {
		return text
	}
	return def
}

// bad returns the first setting that is invalid or that the maker does not have.
func (s *settings) bad(made string) error {
	if s.err != nil {
		return s.err
	}
	var names []string
	for _, k := range s.known {
		names = append(names, k.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(s.values)) {
		if !slices.Contains(names, name) {
			return fmt.Errorf("--made-option %s=%s: %s has %s", name, s.values[name], made, strings.Join(names, ", "))
		}
	}
	return nil
}

func gavel(continuous bool) reader {
	return func(r workload.Request, s *settings, _ *trace.Trace) making {
		o := generate.GavelDefaults(r.Throughputs)
		if continuous {
			o = generate.GavelContinuousDefaults(r.Throughputs)
		}
		o.Seed = r.Seed
		o.Jobs = s.whole("jobs", o.Jobs, "number of jobs")
		o.Lambda = s.float("lambda", o.Lambda, "mean seconds between arrivals; 0 for all at the start")
		o.Reference = s.text("reference", o.Reference, "GPU type that run times are of")
		o.Priorities = s.yes("priorities", false, "one job in five has the weight 5")
		return func() (*trace.Trace, error) {
			if r.Throughputs == nil {
				return nil, errTable
			}
			return generate.MakeGavel(o)
		}
	}
}

func themis(halving bool) reader {
	return func(r workload.Request, s *settings, base *trace.Trace) making {
		o := generate.ThemisDefaults(halving)
		o.Seed, o.Arrivals = r.Seed, base
		o.Apps = s.whole("apps", o.Apps, "number of apps")
		o.Days = s.float("days", o.Days, "days in which they arrive")
		o.Contention = s.float("contention", o.Contention, "by how much arrivals are compressed")
		o.Present = min(o.Apps, s.whole("present", o.Present, "apps that are there when the snapshot begins"))
		o.Burst = s.float("burst", o.Burst, "standard deviation of the logarithm of an hour's arrivals, without --trace; 0 for none")
		o.Elastic = s.yes("elastic", o.Elastic, "a job runs with fewer devices, too, than it has tasks")
		if halving {
			o.Grow = s.yes("grow", o.Grow, "a job that is kept may use eta times as many devices in the next phase")
		} else {
			o.EarlyStop = s.yes("early-stop", o.EarlyStop, "a tuner stops jobs by their curves; otherwise their lengths are what it left of them")
		}
		o.OneTenant = s.yes("one-tenant", o.OneTenant, "all apps are one tenant's; otherwise each app is its own tenant")
		o.Network = s.float("network", o.Network, "share of apps that need a fast network; below 0 for the mix's")
		o.Single = s.float("single", o.Single, "share of apps of one job")
		o.TaskHours = s.float("task-hours", o.TaskHours, "median run time of a task in hours")
		o.StepSeconds = s.float("step-seconds", o.StepSeconds, "run time of a step with the whole gang")
		o.FewJobs = s.whole("few-jobs", o.FewJobs, "least jobs of an app of several")
		o.MedianJobs = s.whole("median-jobs", o.MedianJobs, "median jobs of an app")
		o.MaxJobs = s.whole("max-jobs", o.MaxJobs, "most jobs of an app")
		o.Eta = s.whole("eta", o.Eta, "factor of halving")
		return func() (*trace.Trace, error) { return generate.MakeThemis(o) }
	}
}

func hadar(r workload.Request, s *settings, base *trace.Trace) making {
	o := generate.HadarDefaults(r.Throughputs)
	o.Seed, o.Base = r.Seed, base
	o.Jobs = s.whole("jobs", o.Jobs, "number of jobs")
	o.UniformSizes = s.yes("uniform-sizes", o.UniformSizes, "draw the size first, then a job of it")
	o.Arrive = s.yes("arrive", o.Arrive, "keep arrivals; otherwise all jobs are there at the start")
	o.Reference = s.text("reference", o.Reference, "GPU type that run times are of")
	return func() (*trace.Trace, error) {
		if r.Throughputs == nil {
			return nil, errTable
		}
		return generate.MakeHadar(o)
	}
}

func hadare(r workload.Request, s *settings, _ *trace.Trace) making {
	o := generate.HadarEDefaults(s.text("mix", "M-5", "M-1, M-3, M-4, M-5, M-8, M-10 or M-12"), r.Throughputs)
	o.Seed = r.Seed
	o.Forks = s.text("forks", o.Forks, "how many processes may train a job at once, where the policy forks: auto, or such as 2-5; empty for one")
	o.Vary = s.yes("vary", o.Vary, "draw run times around those of their size, and how fast each type of GPU is")
	return func() (*trace.Trace, error) { return generate.MakeHadarE(o) }
}

func oasis(r workload.Request, s *settings, _ *trace.Trace) making {
	o := generate.OASiSDefaults()
	o.Seed = r.Seed
	o.Jobs = s.whole("jobs", o.Jobs, "number of jobs")
	o.Slots = s.whole("slots", o.Slots, "slots in which they arrive")
	o.SlotSeconds = s.float("slot-seconds", o.SlotSeconds, "length of a slot")
	times := s.float("times", 1, "by how much what a mini-batch takes is multiplied: as the paper prints it, most jobs take longer than the slots there are")
	o.Insensitive = s.float("insensitive", o.Insensitive, "part of the jobs whose utility does not fall")
	o.CriticalPart = s.float("critical", o.CriticalPart, "part of the jobs whose utility falls steeply at their target; that of the rest falls slowly")
	o.Priority[1] = s.float("priority", o.Priority[1], "the most that a job is worth; the least is 1")
	for i := range 2 {
		o.BatchSlots[i] *= times
		o.GradientMB[i] *= times
	}
	return func() (*trace.Trace, error) {
		w, err := generate.MakeOASiS(o)
		if err != nil {
			return nil, err
		}
		return w.Trace(), nil
	}
}

func ogasched(r workload.Request, s *settings, _ *trace.Trace) making {
	o := generate.OGASchedDefaults()
	o.Seed = r.Seed
	o.Slots = s.whole("slots", o.Slots, "slots")
	o.Contention = s.float("contention", o.Contention, "by how much requests are multiplied")
	o.Arrival = s.float("arrival", o.Arrival, "probability of a port's job in a slot")
	kind := s.whole("kind", 0, "kind of resource that stands for devices")
	slot := s.float("slot-seconds", 60, "length of a slot")
	rewarded := s.yes("rewarded", false, "jobs are elastic, and worth their port's request if they end within two slots")
	return func() (*trace.Trace, error) {
		w, err := generate.MakeOGASched(o)
		if err != nil {
			return nil, err
		}
		if rewarded {
			return w.Rewarded(kind, slot)
		}
		return w.Trace(kind, slot)
	}
}

func venus(r workload.Request, s *settings, _ *trace.Trace) making {
	o := generate.VenusDefaults()
	o.Seed = r.Seed
	o.Jobs = s.whole("jobs", o.Jobs, "number of jobs")
	o.Tenants = s.whole("tenants", o.Tenants, "number of tenants")
	o.Days = s.float("days", o.Days, "days in which they arrive")
	o.Devices = s.whole("devices", o.Devices, "devices that the tenants share")
	o.Sizes = s.float("sizes", o.Sizes, "standard deviation of the logarithm of tenants' parts of the devices")
	o.Activity = s.float("activity", o.Activity, "standard deviation of the logarithm of how much tenants submit for their part")
	o.Burst = s.float("burst", o.Burst, "standard deviation of the logarithm of a tenant's rate, from one half of a day to the next")
	return func() (*trace.Trace, error) { return generate.MakeVenus(o) }
}

func astraea(defaults func(*trace.Trace) generate.ASTRAEAOptions) reader {
	return func(r workload.Request, s *settings, base *trace.Trace) making {
		o := defaults(base)
		o.Seed = r.Seed
		o.Jobs = s.whole("jobs", o.Jobs, "number of jobs; 0 for those of the snapshot")
		o.Days = s.float("days", o.Days, "days of the snapshot")
		return func() (*trace.Trace, error) {
			if base == nil {
				return nil, errBase
			}
			return generate.MakeASTRAEA(o)
		}
	}
}
