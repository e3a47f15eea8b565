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
	"github.com/outbid-dev/outbid/worker/gang"
	"github.com/outbid-dev/outbid/worker/inventory"
)

// inherited returns patterns of the environment variables of the worker that training code always gets: user and
// locale, the search paths of programs, libraries and modules, and hardware settings. Other variables are not passed
// on because they may be secrets, such as the keys of a store, tokens, or passwords of a proxy.
func inherited() []string {
	return append(threadVariables(), []string{
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR",
		"LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX",
		"CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_CACHE_PATH", "CUDA_DEVICE_ORDER", "CUDA_MODULE_LOADING",
		"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
		"NCCL_*", "GLOO_SOCKET_IFNAME",
	}...)
}

// openMP limits the threads of OpenMP libraries, which PyTorch uses.
const openMP = "OMP_NUM_THREADS"

// threadVariables returns the variables that limit the threads of numeric libraries: OpenMP, MKL, OpenBLAS, BLIS,
// NumExpr, Apple's Accelerate, Numba, Rayon and Polars. Without them each library uses all cores of the machine.
func threadVariables() []string {
	return []string{
		openMP, "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
		"NUMBA_NUM_THREADS", "RAYON_NUM_THREADS", "POLARS_MAX_THREADS",
	}
}

// ownPrefix is the prefix of Outbid's own variables, which training code never inherits.
const ownPrefix = "OUTBID_"

// CheckPassEnv returns why patterns of variables to pass on to training code are invalid, or nil.
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

// passed returns the variables that match a pattern, as "name=value", except Outbid's own.
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

// environ returns the environment of training code: the variables inherited or passed on from the worker, the user's
// own, the node's name, and exactly the leased GPUs. Numeric libraries get as many threads as the trial has CPUs,
// unless the worker's environment or the user sets another number, because trials with threads on every core slow
// each other down.
func (s *starter) environ(f *fork, user map[string]string) []string {
	env := slices.Clone(s.inherit())
	env = append(env, threadLimits(env, user, strconv.Itoa(s.threads(f)))...)
	for _, given := range []map[string]string{user, f.secrets.variables} {
		for _, name := range slices.Sorted(maps.Keys(given)) {
			env = append(env, name+"="+given[name])
		}
	}
	if span := f.telemetry.traceparent(); span != "" {
		env = append(env, "TRACEPARENT="+span)
	}
	visible := inventory.Visible(s.cfg.Machine.Devices, f.body.GetDevices(), s.cfg.Machine.Given)
	return append(env, "OUTBID_NODE="+s.cfg.Node, "CUDA_VISIBLE_DEVICES="+visible)
}

// threadLimits returns the variables of numeric libraries that neither the inherited environment nor the user sets. A
// number that is set for OpenMP also applies to the others.
func threadLimits(inherited []string, user map[string]string, threads string) (env []string) {
	set := map[string]string{}
	for _, entry := range inherited {
		name, value, _ := strings.Cut(entry, "=")
		set[name] = value
	}
	maps.Copy(set, user)
	if first, _, _ := strings.Cut(set[openMP], ","); first != "" { // the number of the outermost level of nesting
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

// inherit returns the variables that every trial gets from the worker's environment.
func (s *starter) inherit() []string {
	s.inheriting.Do(func() {
		names := inherited()
		if s.cfg.closed { // the trial has its own home and user name
			names = slices.DeleteFunc(names, func(name string) bool {
				return slices.Contains([]string{"HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"}, name)
			})
		}
		s.inherited = passed(os.Environ(), append(names, s.cfg.PassEnv...))
	})
	return s.inherited
}

// threads returns the trial's number of CPUs: as many as it asked for, the cores that it was leased, or its GPUs'
// share of all cores. The processes of a function on this node divide them.
func (s *starter) threads(f *fork) int {
	size := 1
	if f.body.GetWorkload().GetFunction() != nil {
		size = gang.Size(f.body.GetGang(), len(f.body.GetDevices()))
	}
	return max(s.trialThreads(f)/size, 1)
}

func (s *starter) trialThreads(f *fork) int {
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
