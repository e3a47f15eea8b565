package spec

import (
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// habit returns a correction for a field name of Ray, Optuna, W&B or another tuner, or for a field of Outbid that
// belongs elsewhere in the spec. It returns "" for other fields.
func habit(md protoreflect.MessageDescriptor, key string, value *yaml.Node) string {
	key = strings.ToLower(key)
	switch md.FullName() {
	case "outbid.v1.SweepSpec":
		return topHabit(key, value)
	case "outbid.v1.Parameter":
		return parameterHabit(key)
	case "outbid.v1.Tuner":
		return tunerHabit(key)
	case "outbid.v1.FloatRange", "outbid.v1.IntRange":
		return map[string]string{"min": "write low", "max": "write high", "step": "write quantum", "q": "write quantum"}[key]
	case "outbid.v1.Limits":
		switch key {
		case "n_trials", "num_samples", "max_trials", "run_cap":
			return "write trials"
		case "n_jobs", "max_concurrent_trials", "max_concurrent", "parallel":
			return "write concurrency"
		case "timeout", "time_budget_s", "time_limit":
			return "write wall_time, such as 2h"
		}
	case "outbid.v1.Resources":
		switch key {
		case "gpu", "gpus", "num_gpus", "gpus_per_trial":
			return "write devices: " + devices(value)
		case "cpu", "num_cpus":
			return "write cpus"
		}
	}
	return settingHabit(md, key)
}

// settingHabit is habit for the settings of a tuner. It names only settings that the tuner has.
func settingHabit(md protoreflect.MessageDescriptor, key string) string {
	meant := ""
	switch key {
	case "max_t", "max_iter", "max_epochs", "max_resource", "epochs":
		meant = "max_steps"
	case "grace_period", "min_resource", "min_iter":
		meant = "min_steps"
	case "reduction_factor", "factor":
		meant = "eta"
	case "population_size", "pop_size":
		meant = "population"
	case "perturbation_interval":
		meant = "interval"
	}
	if meant == "" || md.Fields().ByName(protoreflect.Name(meant)) == nil {
		return ""
	}
	return "write " + meant
}

// topHabit is habit for fields at the top of the spec.
func topHabit(key string, value *yaml.Node) string {
	switch key {
	case "trials", "n_trials", "num_samples", "max_trials", "run_cap", "max_evals":
		return "write limits: {trials: " + number(value, "20") + "}"
	case "concurrency", "n_jobs", "max_concurrent_trials", "max_concurrent", "parallel":
		return "write limits: {concurrency: " + number(value, "4") + "}"
	case "wall_time", "timeout", "time_budget_s", "time_limit":
		return "write limits: {wall_time: 2h}"
	case "steps", "target":
		return "write limits: {" + key + ": " + number(value, "100") + "}"
	case "parameters", "params", "config", "param_space", "search_space", "hyperparameters":
		return "write space"
	case "direction", "goal", "objective":
		return "write mode: max or mode: min"
	case "method", "algorithm", "sampler", "search_alg", "scheduler", "pruner", "early_terminate", "strategy":
		return "write tuner, such as tuner: {hyperband: {max_steps: 81}}, or leave it out"
	case "max_steps", "max_epochs", "max_t", "epochs", "iterations":
		return "write it in the tuner, such as tuner: {hyperband: {max_steps: " + number(value, "81") + "}}"
	case "seed", "points", "points_to_evaluate":
		return "write it in the tuner, such as tuner: {random: {}, " + strings.TrimSuffix(key, "_to_evaluate") + ": ...}"
	case "command", "shell", "script", "entrypoint", "run":
		return "write program: {command: [python, train.py]} or program: {shell: python train.py}"
	case "devices", "gpus", "gpu", "num_gpus", "resources_per_trial", "cpus", "memory", "types":
		return "write it in resources, such as resources: {devices: {min: 1}}"
	case "env", "workdir":
		return "write it in program"
	case "project", "entity", "experiment", "description", "tags":
		return "write labels: {" + key + ": ...}"
	}
	return ""
}

// parameterHabit is habit for fields directly below a parameter's name.
func parameterHabit(key string) string {
	switch key {
	case "min", "max", "low", "high", "log", "distribution", "mu", "sigma", "uniform", "loguniform":
		return "write the kind around it, such as float: {low: 0.001, high: 0.1, log: true} or int: {low: 1, high: 8}"
	case "values", "value", "categorical", "grid_search", "options":
		return "write choice: {values: [a, b]}, or constant: a for one value"
	case "type", "name":
		return "write float, int, choice, constant or group in its place"
	}
	return ""
}

// tunerHabit is habit for the kinds of tuners.
func tunerHabit(key string) string {
	switch key {
	case "tpe", "gp", "cmaes", "nsga2", "bayes", "bayesian", "optuna":
		sampler := key
		if key == "bayes" || key == "bayesian" || key == "optuna" {
			sampler = "tpe"
		}
		return "write plugin: {settings: {sampler: " + sampler + "}, rule: {random: {}}}"
	case "method", "name", "type", "kind":
		return "write the tuner's name in its place, such as tuner: {random: {}}"
	case "sampler", "max_steps", "eta", "min_steps":
		return "write it within the tuner's name, such as tuner: {asha: {max_steps: 81}}"
	case "trials":
		return "write limits: {trials: 20} outside of tuner"
	}
	return ""
}

// devices returns the setting of a count of devices.
func devices(node *yaml.Node) string {
	if node != nil && node.ShortTag() == "!!float" {
		return "{min: 1}: a trial has whole devices"
	}
	return "{min: " + number(node, "1") + "}"
}

// number returns a numeric scalar as written, or the example for any other node.
func number(node *yaml.Node, example string) string {
	if node != nil && node.Kind == yaml.ScalarNode && (node.ShortTag() == "!!int" || node.ShortTag() == "!!float") {
		return node.Value
	}
	return example
}

// shapeHabit returns a correction for a value that should be a mapping. It returns "" if it is a mapping or has no
// obvious meaning.
func shapeHabit(md protoreflect.MessageDescriptor, node *yaml.Node) string {
	if node.Kind == yaml.MappingNode || node.ShortTag() == "!!null" {
		return ""
	}
	isList := node.Kind == yaml.SequenceNode
	switch md.FullName() {
	case "outbid.v1.Parameter":
		if isList {
			return "write {choice: {values: [...]}}"
		}
		return "write {constant: " + node.Value + "}"
	case "outbid.v1.Choice":
		if isList {
			return "write {values: [...]}"
		}
	case "outbid.v1.Tuner":
		if md.Fields().ByName(protoreflect.Name(node.Value)) != nil {
			return "write {" + node.Value + ": {}} and its settings, such as max_steps"
		}
	case "outbid.v1.Program":
		if isList {
			return "write {command: [...]}"
		}
		return "write {shell: " + node.Value + "}"
	case "outbid.v1.DeviceCount":
		return "write " + devices(node)
	}
	return ""
}
