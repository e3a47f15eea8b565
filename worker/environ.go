package worker

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/inventory"
)

// inherited are the variables of the worker's environment that training code sees without anybody asking for it, as
// patterns: who and where it is, where programs, libraries and modules are found, and what hardware needs. What is
// not here stays with the worker, as it may be a secret: keys of a store, tokens, passwords of a proxy.
func inherited() []string {
	return append(threadVariables(), []string{
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR",
		"LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX",
		"CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_CACHE_PATH", "CUDA_DEVICE_ORDER", "CUDA_MODULE_LOADING",
		"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
		"NCCL_*", "GLOO_SOCKET_IFNAME",
	}...)
}

// openMP bounds the threads of OpenMP's libraries, PyTorch among them.
const openMP = "OMP_NUM_THREADS"

// threadVariables bound how many threads numeric libraries use: OpenMP, MKL, OpenBLAS, BLIS, NumExpr, Apple's Accelerate, Numba,
// Rayon and Polars. Each takes all cores of the machine otherwise.
func threadVariables() []string {
	return []string{
		openMP, "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
		"NUMBA_NUM_THREADS", "RAYON_NUM_THREADS", "POLARS_MAX_THREADS",
	}
}

// ownPrefix begins the names of Outbid's own variables, which training code never inherits.
const ownPrefix = "OUTBID_"

// CheckPassEnv says what is wrong with patterns of names of variables that are passed on to training code.
func CheckPassEnv(patterns []string) error {
	for _, p := range patterns {
		_, err := path.Match(p, "")
		switch {
		case p == "" || err != nil || strings.ContainsAny(p, "= \t\n/"):
			return fmt.Errorf("%q: want names of environment variables, such as HF_HOME, or patterns, such as 'WANDB_*'", p)
		case strings.HasPrefix(p, ownPrefix):
			return fmt.Errorf("%q: Outbid's own variables are never passed on to training code", p)
		}
	}
	return nil
}

// passed are the variables of the worker's environment that match a pattern, as "name=value", without Outbid's own.
func passed(environ []string, patterns []string) []string {
	var env []string
	for _, entry := range environ {
		name, _, ok := strings.Cut(entry, "=")
		if !ok || name == "" || strings.HasPrefix(name, ownPrefix) {
			continue
		}
		if slices.ContainsFunc(patterns, func(p string) bool { ok, err := path.Match(p, name); return ok && err == nil }) {
			env = append(env, entry)
		}
	}
	return env
}

// environ is the environment of training code, made from nothing: what is inherited or passed on from the worker's,
// what the user set, the node's name, and exactly the granted GPUs. Numeric libraries get as many threads as the trial
// has CPUs, unless the worker's environment or the user sets another number: trials with threads on every core slow each other down.
func (s *starter) environ(f *fork, user map[string]string) []string {
	env := slices.Clone(s.inherit())
	env = append(env, threadLimits(env, user, strconv.Itoa(s.threads(f)))...)
	for _, given := range []map[string]string{user, f.secrets} {
		for _, name := range slices.Sorted(maps.Keys(given)) {
			env = append(env, name+"="+given[name])
		}
	}
	visible := inventory.Visible(s.cfg.Machine.Devices, f.body.GetDevices(), s.cfg.Machine.Given)
	return append(env, "OUTBID_NODE="+s.cfg.Node, "CUDA_VISIBLE_DEVICES="+visible)
}

// threadLimits returns the variables of numeric libraries that neither the inherited environment nor the user sets. A number that is
// set for OpenMP is meant for the others too.
func threadLimits(inherited []string, user map[string]string, threads string) (env []string) {
	set := map[string]string{}
	for _, entry := range inherited {
		name, value, _ := strings.Cut(entry, "=")
		set[name] = value
	}
	maps.Copy(set, user)
	if first, _, _ := strings.Cut(set[openMP], ","); first != "" { // one for each level of nesting
		if _, err := strconv.ParseUint(first, 10, 31); err == nil {
			threads = first
		}
	}
	for _, name := range threadVariables() {
		if _, is := set[name]; !is {
			env = append(env, name+"="+threads)
		}
	}
	return env
}

// inherit is what every trial has of the worker's environment, which does not change.
func (s *starter) inherit() []string {
	s.inheriting.Do(func() {
		names := inherited()
		if s.cfg.closed { // it has a home and a name of its own
			names = slices.DeleteFunc(names, func(name string) bool {
				return slices.Contains([]string{"HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"}, name)
			})
		}
		s.inherited = passed(os.Environ(), append(names, s.cfg.PassEnv...))
	})
	return s.inherited
}

// threads is the trial's number of CPUs: what it asked for, the cores it was granted, or its GPUs' share of all.
func (s *starter) threads(f *fork) int {
	if n := int(f.body.GetCpus()); n > 0 {
		return n
	}
	granted := s.devices(f)
	if len(granted) > 0 && !slices.ContainsFunc(granted, func(d *outbidv1.Device) bool { return d.GetType() != inventory.CPU }) {
		return len(granted)
	}
	all := max(len(s.cfg.Machine.Devices), 1)
	return max(s.cfg.Machine.CPUs*len(granted)/all, 1)
}
