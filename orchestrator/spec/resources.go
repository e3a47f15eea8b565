package spec

import (
	"math"
	"slices"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func checkResources(s *outbidv1.SweepSpec) error {
	r := s.GetResources()
	d := r.GetDevices()
	switch {
	case d.GetMin() < 1 || d.GetMin() > maxDevices:
		return wrong("resources.devices.min", "must be from 1 to %d, got %d", maxDevices, d.GetMin())
	case d.GetMax() < d.GetMin():
		return wrong("resources.devices.max", "%d is below min (%d)", d.GetMax(), d.GetMin())
	case d.GetMax() > maxDevices:
		return wrong("resources.devices.max", "must be from 1 to %d, got %d", maxDevices, d.GetMax())
	case math.IsNaN(r.GetCpus()) || math.IsInf(r.GetCpus(), 0) || r.GetCpus() < 0:
		return wrong("resources.cpus", "must be a number of CPU cores, or 0 for no requirement, got %v", r.GetCpus())
	}
	if err := checkTypes("resources.types", r.GetTypes()); err != nil {
		return err
	}
	if err := checkTypes("resources.exclude_types", r.GetExcludeTypes()); err != nil {
		return err
	}
	for i, t := range r.GetExcludeTypes() {
		if slices.Contains(r.GetTypes(), t) {
			return wrong("resources.exclude_types["+itoa(i)+"]", "%q is also in resources.types; keep it in one of them", t)
		}
	}
	if err := checkGang(s); err != nil {
		return err
	}
	if err := checkForks(s); err != nil {
		return err
	}
	if r.GetMemory() != "" {
		if _, err := terms.ParseBytes(r.GetMemory()); err != nil {
			return wrong("resources.memory", "%v", err)
		}
	}
	return nil
}

// PerDevice reports whether a trial has one process for each of its devices.
func PerDevice(s *outbidv1.SweepSpec) bool { return s.GetResources().GetProcesses() == perDevice }

const perDevice = "per_device"

// checkGang checks how a trial's processes are distributed over its devices.
func checkGang(s *outbidv1.SweepSpec) error {
	r := s.GetResources()
	switch p := r.GetProcesses(); {
	case p != "" && p != "one" && p != perDevice:
		return wrong("resources.processes", "%q is unknown; use one or per_device", p)
	case s.GetExternal() != nil && p == perDevice:
		return wrong("resources.processes", "%q cannot be used in an external sweep, whose trials are trained by clients; leave it out", p)
	case s.GetExternal() != nil && r.GetSpread():
		return wrong("resources.spread", "cannot be used in an external sweep, whose trials are trained by clients; leave it out")
	}
	return nil
}

// checkForks checks the settings for training a trial in several forks.
func checkForks(s *outbidv1.SweepSpec) error {
	r := s.GetResources()
	if _, err := terms.ParseMerge(r.GetForksMerge()); err != nil {
		return wrong("resources.forks_merge", "%v", err)
	}
	if r.GetForks() == "" {
		if r.GetForksMerge() != "" {
			return wrong("resources.forks_merge", "has no effect without forks; set resources.forks, or leave it out")
		}
		return nil
	}
	_, _, err := terms.ParseForks(r.GetForks())
	kind := tuner.NameOf(s.GetTuner())
	switch {
	case err != nil:
		return wrong("resources.forks", "%v", err)
	case s.GetExternal() != nil:
		return wrong("resources.forks", "cannot be used in an external sweep, whose trials are trained by clients")
	case r.GetSpread():
		return wrong("resources.forks", "cannot be used with resources.spread, because a fork runs on one node; leave out one of them")
	case registry.TraitsOf(kind).Copies:
		return wrong("resources.forks", "cannot be used with tuner.%s, whose members copy each other; use another tuner, or leave it out", kind)
	case tuner.MaxSteps(s.GetTuner()) == 0:
		return wrong("resources.forks", "needs max_steps of the tuner, because a trial's steps are divided over its forks")
	}
	return nil
}

// checkShare checks the weight and the throughput hints.
func checkShare(s *outbidv1.SweepSpec) error {
	if w := s.GetWeight(); !(w >= 0) || math.IsInf(w, 0) {
		return wrong("weight", "must be at least 0, got %v; 1 is usual", w)
	}
	for i, h := range s.GetThroughputs() {
		field := "throughputs[" + itoa(i) + "]"
		switch _, ok := cluster.ParseLocality(h.GetSpread()); {
		case !ok:
			return wrong(field+".spread", "%q is unknown; use slot, machine, rack or cluster", h.GetSpread())
		case h.GetDevices() < 0 || h.GetDevices() > maxDevices:
			return wrong(field+".devices", "must be from 1 to %d, got %d", maxDevices, h.GetDevices())
		case !(h.GetStepsPerSecond() >= 0) || math.IsInf(h.GetStepsPerSecond(), 0):
			return wrong(field+".steps_per_second", "must be at least 0, got %v", h.GetStepsPerSecond())
		case h.GetTrial() < 0:
			return wrong(field+".trial", "%d is negative; trials count from 0", h.GetTrial())
		}
	}
	return nil
}

func checkTypes(field string, types []string) error {
	for i, t := range types {
		switch {
		case strings.TrimSpace(t) == "" || len(t) > 100:
			return wrong(field+"["+itoa(i)+"]", "%q is not a valid device type; use a name such as v100 or cpu", t)
		case slices.Contains(types[:i], t):
			return wrong(field+"["+itoa(i)+"]", "%q is listed twice", t)
		}
	}
	return nil
}
