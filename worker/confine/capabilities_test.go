//go:build linux

package confine

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestTrialsOfAWorkerWithCapabilitiesHaveNone checks that trials do not inherit the capabilities of a worker that is
// not root, but has the four capabilities that it needs, as from a systemd unit, and those to read every file.
func TestTrialsOfAWorkerWithCapabilitiesHaveNone(t *testing.T) {
	if os.Getenv("WITH_CAPABILITIES") != "" {
		lines, wait := run(t, enter(t, open(t, Auto), Limits{}), "id -u; grep '^Cap[PEA]' /proc/self/status")
		if err := wait(); err != nil || len(lines) != 4 {
			t.Fatal(lines, err)
		}
		if lines[0] == "65534" || lines[0] == "0" {
			t.Errorf("the trial runs as user %s", lines[0])
		}
		mine := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(mine, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := enter(t, open(t, Auto), Limits{}).As(func() error { _, err := os.ReadFile(mine); return err }); !errors.Is(err, os.ErrPermission) {
			t.Errorf("the worker's own file with the trial's rights: %v", err)
		}
		for _, line := range lines[1:] {
			if _, set, _ := strings.Cut(line, ":"); strings.Trim(set, "0 \t") != "" {
				t.Errorf("a trial has capabilities: %s", line)
			}
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("this takes root")
	}
	dir, err := os.MkdirTemp("/var/tmp", "outbid-test-") //nolint:usetesting // other users must access it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program := filepath.Join(dir, "worker")
	if err := errors.Join(copyProgram(program), os.Chown(dir, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run", "^"+t.Name()+"$")
	cmd.Dir, cmd.Env = dir, []string{"WITH_CAPABILITIES=1", "PATH=/usr/bin:/bin", "TMPDIR=" + dir}
	const chown, override, search, kill, setgid, setuid = 0, 1, 2, 5, 6, 7
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, AmbientCaps: []uintptr{chown, override, search, kill, setgid, setuid},
	}
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "SKIP") {
		t.Errorf("%v\n%s", err, out)
	}
}

// copyProgram creates a copy of this program that every user may run.
func copyProgram(path string) error {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer from.Close()                                           //nolint:errcheck // only read
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755) //nolint:gosec // others run it
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}
