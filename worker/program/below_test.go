package program

import (
	"os"
	"os/exec"
	"testing"

	"github.com/outbid-dev/outbid/worker/confine"
)

// belowEnv is set where the tests of this package run once more, without control groups and below subreapers.
const belowEnv = "OUTBID_TEST_BELOW"

// inside is what the tests' processes run in: nothing, or a confinement without a control group.
func inside(t *testing.T) *confine.Confinement {
	t.Helper()
	if os.Getenv(belowEnv) == "" {
		return nil
	}
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

// Exit codes, signals, output, stops and grace are the same below a subreaper.
func TestTheSameBelowASubreaper(t *testing.T) {
	t.Parallel()
	if os.Getenv(belowEnv) != "" {
		t.Skip("this is it")
	}
	again := exec.Command(os.Args[0], "-test.run", "^Test")
	again.Env = append(os.Environ(), belowEnv+"=1")
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
