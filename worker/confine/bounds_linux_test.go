package confine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// openWith opens a Confiner whose trials have their own users.
func openWith(t *testing.T, change func(*Config)) *Confiner {
	t.Helper()
	if CanSwitch() != nil {
		t.Skip("this takes root")
	}
	cfg := Config{Dir: t.TempDir(), User: Auto, Processes: 40, Files: 123}
	change(&cfg)
	c, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// forks starts more processes than a trial may have and prints how many of them run.
const forks = `for i in $(seq 100); do (sleep 60 > /dev/null & echo started); done 2>/dev/null | grep -c started; ulimit -Hn; ulimit -Hc; exit 3`

// boundedEnv is set if this program is a worker's process that has limited itself.
const boundedEnv = "OUTBID_TEST_BOUNDED"

// A trial gets as many processes and open files as allowed, limited by its control group or by its user, and dumps no
// core.
func TestProcessesAndFilesAreBounded(t *testing.T) {
	how := os.Getenv(boundedEnv)
	if how == "" { // it limits this whole process
		t.Parallel()
		for _, how := range []string{"control group", "user"} {
			cmd := exec.Command(os.Args[0], "-test.run=^TestProcessesAndFilesAreBounded$", "-test.v")
			cmd.Env = append(os.Environ(), boundedEnv+"="+how)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("by %s: %v\n%s", how, err, out)
			}
		}
		return
	}
	c := openWith(t, func(cfg *Config) { cfg.NoGroups = how == "user" })
	if how == "control group" {
		needs(t, c, "pids")
	}
	if err := c.LimitSelf(); err != nil {
		t.Fatal(err)
	}
	in := enter(t, c, Limits{})
	lines, wait := run(t, in, forks)
	_ = wait() // it exits as its script says
	var started int
	if _, err := fmt.Sscan(strings.Join(lines, " "), &started); err != nil || started >= 40 || started < 20 || !slices.Equal(lines[1:], []string{"123", "0"}) {
		t.Errorf("it started %v processes, and may open files and dump a core of %v: %v", lines[:1], lines[1:], err)
	}
	if met := in.Left(); how == "control group" && met.Processes != 40 {
		t.Errorf("the limits that it met are %+v", met)
	}
	lines, wait = run(t, in, `echo well`) // the processes that it had started are gone
	if err := wait(); err != nil || !slices.Equal(lines, []string{"well"}) {
		t.Error(err, lines)
	}
	if met := in.Left(); met != (Exceeded{}) {
		t.Errorf("the limits that it met later are %+v", met)
	}
}

// ipcs returns the System V objects of a user on this machine.
func ipcs(t *testing.T, in *Confinement) (all []uintptr) {
	t.Helper()
	for _, kind := range []string{"shm", "sem", "msg"} {
		ids, err := madeBy("/proc/sysvipc/"+kind, in.User().UID)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ids...)
	}
	return all
}

const leaveIPC = `ipcmk -M 300000 > /dev/null && ipcmk -S 3 > /dev/null && ipcmk -Q > /dev/null; cd /tmp && echo mine > mine; ls /tmp; `

// System V IPC objects of a trial and its files in /tmp and /dev/shm are removed with the trial, and are invisible
// for others before. Without namespaces, the worker removes what belongs to the trial's user.
func TestWhatATrialLeavesInMemoryGoesWithIt(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/usr/bin/ipcmk"); err != nil {
		t.Skip("there is no ipcmk here")
	}
	t.Run("namespaces", func(t *testing.T) {
		t.Parallel()
		c := openWith(t, func(*Config) {})
		if c.whyShared != "" {
			t.Skip(c.whyShared)
		}
		in, other := enter(t, c, Limits{MemoryBytes: 64 << 20}), enter(t, c, Limits{})
		lines, wait := run(t, in, leaveIPC+`echo shared > /dev/shm/shared; df -k --output=size /dev/shm | tail -1; echo ready; read x`)
		if want := []string{"mine", "65536"}; !slices.Equal(strings.Fields(strings.Join(lines, " ")), want) {
			t.Errorf("it sees %q, want %q", lines, want)
		}
		if ids := ipcs(t, in); len(ids) > 0 {
			t.Errorf("the machine sees the objects %v of the trial", ids)
		}
		// Other processes of the trial share all of that, the worker finds files that the trial names, and another
		// trial sees nothing.
		const look = `ls /tmp /dev/shm; tail -qn +2 /proc/sysvipc/shm /proc/sysvipc/msg /proc/sysvipc/sem | wc -l`
		same, _ := run(t, in, look)
		if want := []string{"/dev/shm:", "shared", "", "/tmp:", "mine", "3"}; !slices.Equal(same, want) {
			t.Errorf("another process of the trial sees %q, want %q", same, want)
		}
		err := in.As(func() error {
			_, err := os.ReadFile("/tmp" + "/mine")
			return err
		})
		if err != nil {
			t.Errorf("the worker does not find what the trial names: %v", err)
		}
		if _, err := os.Stat("/tmp" + "/mine"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the machine's /tmp has the file of the trial: %v", err)
		}
		if foreign, _ := run(t, other, look); !slices.Equal(foreign, []string{"/dev/shm:", "", "/tmp:", "0"}) {
			t.Errorf("another trial sees %q", foreign)
		}
		in.Left()
		_ = wait() // killed
	})
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		c := openWith(t, func(cfg *Config) { cfg.NoSpaces = true })
		if warnings := strings.Join(c.Warnings(), "; "); !strings.Contains(warnings, "share /tmp, /dev/shm and System V IPC") {
			t.Errorf("its warnings are %q", warnings)
		}
		in, err := c.New(t.Context(), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		_, wait := run(t, in, strings.ReplaceAll(leaveIPC, "> mine", "> $USER"))
		if err := wait(); err != nil {
			t.Error(err)
		}
		in.Left()
		if ids := ipcs(t, in); len(ids) != 3 {
			t.Errorf("it left the objects %v, so there is nothing to test", ids)
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if ids := ipcs(t, in); len(ids) > 0 {
			t.Errorf("the objects %v are left", ids)
		}
	})
}

// Without a network, a trial of any user has only a loopback interface.
func TestATrialWithoutANetwork(t *testing.T) {
	t.Parallel()
	for _, user := range []string{Auto, None} {
		c := openWith(t, func(cfg *Config) { cfg.User, cfg.Network = user, NetworkNone })
		lines, wait := run(t, enter(t, c, Limits{}), `tail -qn +3 /proc/self/net/dev | cut -d: -f1 | tr -d ' '; grep -c 127.0.0.1 /proc/self/net/fib_trie`)
		if err := wait(); err != nil || len(lines) != 2 || lines[0] != "lo" || lines[1] == "0" {
			t.Errorf("as %s it has the interfaces %q: %v", user, lines, err)
		}
	}
}

// A directory of trials' files below /tmp stays visible for them.
func TestTrialsFilesMayBeBelowTmp(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "outbid-trial-dir-") //nolint:usetesting // other users must access it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // others pass through it
		t.Fatal(err)
	}
	c := openWith(t, func(cfg *Config) { cfg.TrialDir = dir })
	lines, wait := run(t, enter(t, c, Limits{}), `cd "$HOME" && echo x > y && cat "$HOME/y"`)
	if err := wait(); err != nil || !slices.Equal(lines, []string{"x"}) {
		t.Error(err, lines)
	}
}
