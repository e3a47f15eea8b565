// Package subreapertest runs the tests of a package a second time with a subreaper above every process that they
// start: exit codes, signals, output, stops and grace must be the same.
package subreapertest

import (
	"os"
	"os/exec"
	"testing"

	"github.com/outbid-dev/outbid/worker/confine"
)

// env is set if the tests run for the second time.
const env = "OUTBID_TEST_BELOW"

// Inside returns the confinement of the tests' processes: nil the first time, one without a control group the second
// time.
func Inside(t *testing.T) *confine.Confinement {
	t.Helper()
	if os.Getenv(env) == "" {
		return nil
	}
	return Ungrouped(t)
}

// Ungrouped returns a confinement without a control group, so that its processes get a subreaper.
func Ungrouped(t *testing.T) *confine.Confinement {
	t.Helper()
	c, err := confine.Open(t.Context(), confine.Config{Dir: t.TempDir(), NoGroups: true})
	if err != nil {
		t.Fatal(err)
	}
	in, err := c.New(t.Context(), confine.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// Again runs the tests whose names match a pattern a second time. TestMain of the package must call subreaper.Main.
func Again(t *testing.T, pattern string) {
	t.Helper()
	if os.Getenv(env) != "" {
		t.Skip("already the second run")
	}
	again := exec.Command(os.Args[0], "-test.run", pattern)
	again.Env = append(os.Environ(), env+"=1")
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
