package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// fakePython writes a program that answers like a Python interpreter.
func fakePython(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func doctorChecks(t *testing.T, url, python string, want int) map[string]checkView {
	t.Helper()
	app := newTestApp(nil, nil)
	wantExit(t, app, app.start(t.Context(), "doctor", "-o", "json", "--server", url, "--python", python), want)
	var list []checkView
	if err := json.Unmarshal([]byte(app.out.String()), &list); err != nil {
		t.Fatal(err)
	}
	checks := map[string]checkView{}
	for _, c := range list {
		if !c.OK && c.Fix == "" {
			t.Errorf("%s: nothing says what to do", c.Name)
		}
		checks[c.Name] = c
	}
	return checks
}

func TestDoctorFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	url, _ := serveFake(t, newFake(), "127.0.0.1:0")
	checks := doctorChecks(t, url, fakePython(t, "echo ModuleNotFoundError: no outbid >&2; exit 1"), exitFailed)
	for name, ok := range map[string]bool{
		"server": true, "version": true, "policy": true, "nats": true, "store": false, "workers": true, "worker right": false, "python": false,
	} {
		if c, found := checks[name]; !found || c.OK != ok {
			t.Errorf("%s: %+v, want ok=%v", name, c, ok)
		}
	}
	if got := checks["policy"].Detail; got != "themis with lease=5m0s seed=1" {
		t.Errorf("the policy is %q", got)
	}
}

func TestDoctorIsContentWhenAllIsWell(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.nodes = f.nodes[:1]
	f.info.Checks = f.info.GetChecks()[:1]
	url, _ := serveFake(t, f, "127.0.0.1:0")
	doctorChecks(t, url, fakePython(t, "echo 3.12.1 test"), exitOK)
}

func TestDoctorWithoutAServerSaysHowToStartOne(t *testing.T) {
	t.Parallel()
	url, stop := serveFake(t, newFake(), "127.0.0.1:0")
	stop()
	checks := doctorChecks(t, url, "no-such-python", exitFailed)
	if got := checks["server"].Fix; got != "outbid up" {
		t.Errorf("the fix is %q", got)
	}
}

// An SDK of another release is named, with the command that installs the right one.
func TestDoctorNamesAnotherRelease(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.nodes = f.nodes[:1]
	f.info.Checks = f.info.GetChecks()[:1]
	url, _ := serveFake(t, f, "127.0.0.1:0")
	check := doctorChecks(t, url, fakePython(t, "echo 3.12.1 0.9.0"), exitFailed)["python"]
	if check.OK || !strings.Contains(check.Detail, "outbid 0.9.0, and this command is test") || !strings.Contains(check.Fix, "outbid==test") {
		t.Errorf("%+v", check)
	}
}

func TestVersionsOfOneRelease(t *testing.T) {
	t.Parallel()
	for version, want := range map[string][2]string{
		"1.0.0-rc.1+52976a3":       {"1.0.0-rc.1", "1.0.0rc1"},
		"1.0.0-rc.1+52976a3-dirty": {"1.0.0-rc.1", "1.0.0rc1"},
		"1.2.0":                    {"1.2.0", "1.2.0"},
	} {
		if got := [2]string{release(version), pythonVersion(version)}; got != want {
			t.Errorf("%s: %q, want %q", version, got, want)
		}
	}
}

func TestDoctorNamesOtherVersions(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.info.Version = "older"
	f.nodes = []*outbidv1.Node{{Info: &outbidv1.NodeInfo{Name: "w", Version: "oldest"}, State: outbidv1.NodeState_NODE_STATE_UP}}
	url, _ := serveFake(t, f, "127.0.0.1:0")
	checks := doctorChecks(t, url, fakePython(t, "echo 3.12.1 test"), exitFailed)
	if checks["version"].OK || checks["worker w"].OK || !strings.Contains(checks["worker w"].Detail, "oldest") {
		t.Errorf("%+v", checks)
	}
}
