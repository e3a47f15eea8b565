// Package subreapertest runs the tests of a package a second time, in which every process that they start stands below a
// subreaper: exit codes, signals, output, stops and grace are to be the same there.
package subreapertest

import (
	"os"
	"os/exec"
	"testing"

	"github.com/outbid-dev/outbid/worker/confine"
)

// env is set where the tests run for the second time.
const env = "OUTBID_TEST_BELOW"

// Inside is what the tests' processes run in: nothing the first time, a confinement without a control group the second.
func Inside(t *testing.T) *confine.Confinement {
	t.Helper()
	if os.Getenv(env) == "" {
		return nil
	}
	return Ungrouped(t)
}

// Ungrouped is a confinement without a control group, so that a subreaper stands above who runs in it.
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

// Again runs the tests whose names match a pattern for the second time. TestMain of the package calls subreaper.Main.
func Again(t *testing.T, pattern string) {
	t.Helper()
	if os.Getenv(env) != "" {
		t.Skip("this is it")
	}
	again := exec.Command(os.Args[0], "-test.run", pattern)
	again.Env = append(os.Environ(), env+"=1")
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
