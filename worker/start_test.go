package worker

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	good := func() Config {
		return Config{Node: "n1", Bus: &fakeBus{}, Store: Direct(&objects.Dir{}), Dir: "d", Machine: machine(1)}
	}
	for want, change := range map[string]func(*Config){
		"no bus":                            func(c *Config) { c.Bus = nil },
		"no object store":                   func(c *Config) { c.Store = nil },
		"no directory":                      func(c *Config) { c.Dir = "" },
		"no devices":                        func(c *Config) { c.Machine.Devices = nil },
		`node "a.b": want 1 to 128 letters`: func(c *Config) { c.Node = "a.b" },
		`node ""`:                           func(c *Config) { c.Node = "" },
	} {
		c := good()
		change(&c)
		if err := c.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	c := good()
	if err := c.check(); err != nil || c.Boot == "" {
		t.Errorf("%v, boot %q", err, c.Boot)
	}
}

func TestLocalErrors(t *testing.T) {
	t.Parallel()
	s := &starter{cfg: Config{Node: "n1", Dir: "/data"}}
	full := s.nodeFailure(fmt.Errorf("make: %w", &fs.PathError{Op: "mkdir", Path: "/data/scratch", Err: syscall.ENOSPC}))
	if want := "no room left on the disk of the worker's directory /data of node n1"; full.Error() != want {
		t.Errorf("%v", full)
	}
	for err, want := range map[error]outbidv1.FailureKind{
		full: outbidv1.FailureKind_FAILURE_KIND_NODE,
		fmt.Errorf("start: %w", &fs.PathError{Op: "fork/exec", Path: "train", Err: syscall.EAGAIN}): outbidv1.FailureKind_FAILURE_KIND_NODE,
		fmt.Errorf("start: %w", &fs.PathError{Op: "fork/exec", Path: "train", Err: syscall.ENOENT}): outbidv1.FailureKind_FAILURE_KIND_START,
		fail(outbidv1.FailureKind_FAILURE_KIND_HANG, "hangs"):                                       outbidv1.FailureKind_FAILURE_KIND_HANG,
	} {
		if got := kindOf(err); got != want {
			t.Errorf("%v is %v, want %v", err, got, want)
		}
	}
	if err := s.nodeFailure(syscall.EACCES); err.Error() != "the worker of node n1: permission denied" {
		t.Errorf("%v", err)
	}
}

func TestPassedVariables(t *testing.T) {
	t.Parallel()
	environ := []string{
		"PATH=/bin", "LC_ALL=C", "AWS_SECRET_ACCESS_KEY=k", "MINIO_ROOT_PASSWORD=p", "OUTBID_TOKEN=t", "WANDB_API_KEY=w",
		"WANDB_MODE=offline", "HTTPS_PROXY=http://u:p@h", "NCCL_SOCKET_IFNAME=eth0", "=odd", "noequals",
	}
	for name, tc := range map[string]struct{ patterns, want []string }{
		"what is needed": {inherited(), []string{"PATH=/bin", "LC_ALL=C", "NCCL_SOCKET_IFNAME=eth0"}},
		"a name":         {[]string{"WANDB_MODE"}, []string{"WANDB_MODE=offline"}},
		"a pattern":      {[]string{"WANDB_*"}, []string{"WANDB_API_KEY=w", "WANDB_MODE=offline"}},
		"never our own":  {[]string{"*TOKEN", "OUTBID_*"}, nil},
		"nothing":        {nil, nil},
	} {
		if got := passed(environ, tc.patterns); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	for pattern, want := range map[string]string{
		"": "want names", "A=B": "want names", "[": "want names", "a b": "want names", "OUTBID_TOKEN": "never passed on",
	} {
		if err := CheckPassEnv([]string{"HOME", pattern}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", pattern, err, want)
		}
	}
}

func TestThreads(t *testing.T) {
	t.Parallel()
	gpus := machine(4)
	gpus.CPUs = 32
	for _, d := range gpus.Devices {
		d.Type = "h200"
	}
	one := machine(1)
	one.CPUs = 8
	for name, tc := range map[string]struct {
		cfg     Config
		cpus    float64
		devices []int32
		want    int
	}{
		"asked for":     {Config{Machine: gpus}, 3, []int32{0}, 3},
		"share of GPUs": {Config{Machine: gpus}, 0, []int32{0, 1}, 16},
		"CPU slots":     {Config{Machine: one}, 0, []int32{0}, 1},
		"no device":     {Config{Machine: one}, 0, nil, 1},
	} {
		f := &fork{body: &outbidv1.AssignmentBody{Cpus: tc.cpus, Devices: tc.devices}}
		if got := (&starter{cfg: tc.cfg}).threads(f); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	s := &starter{cfg: Config{Python: "/opt/python"}}
	for python, want := range map[string]string{"": "/opt/python", "python3": "/opt/python", "/usr/bin/python3.12": "/usr/bin/python3.12"} {
		got := s.command(&outbidv1.FunctionBody{Python: python})
		if !slices.Equal(got, []string{want, "-m", "outbid.trial_process"}) {
			t.Errorf("%q: %q", python, got)
		}
	}
	if got := hint("ModuleNotFoundError: No module named 'outbid'", "py"); got != "; install it there: py -m pip install outbid" {
		t.Errorf("hint %q", got)
	}
	if got := hint("KeyError", "py"); got != "" {
		t.Errorf("hint %q", got)
	}
}

func TestLastDrawn(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{"": "", "plain": "plain", "dos\r": "dos", " 1%\r 2%\r100%": "100%", "a\rb\r": "b"} {
		if got := string(lastDrawn([]byte(line))); got != want {
			t.Errorf("%q: %q", line, got)
		}
	}
}
