package endtoend

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// explained is the output of `outbid explain -o json`.
type explained struct {
	ID, State, Cause     string
	Why, Lost, Otherwise string
	Outcomes             []struct {
		Policy          string
		Weight, Seconds float64
	}
}

// explain runs `outbid explain` to its end.
func (c *cluster) explain(id string) (e explained) {
	c.t.Helper()
	p := start(c.t, c.dir, "explain", id, "-o", "json", "--server", c.Info.API)
	<-p.ended
	text, _ := p.out.text()
	if p.err != nil || json.Unmarshal([]byte(text), &e) != nil {
		c.t.Fatalf("explain %s: %v\n%s", id, p.err, text)
	}
	return e
}

// TestTwoSweepsThatCompeteAreExplained runs two sweeps on two devices. The explanations name the sweep that holds the
// devices, the trials that got those of a lease that ended, and simulate the ledger under other policies and weights.
func TestTwoSweepsThatCompeteAreExplained(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--policy", "themis", "--policy-option", "lease=2s")
	c.worker("a", "cpu:2", "")
	submit := func(name string) string {
		tuner := &outbidv1.Tuner{Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{MaxSteps: 200}}}
		return c.submit(job{name: name, mode: "well", tuner: tuner, trials: 8, env: map[string]string{"PACE": "50ms"}}.spec(t, c.locks))
	}
	first := submit("first")
	c.waitSteps(first, 20)
	if alone := c.explain(first); !strings.Contains(alone.Otherwise, "cluster to itself") || len(alone.Outcomes) > 0 {
		t.Errorf("of a sweep alone it says %+v", alone)
	}
	second := submit("second")
	c.waitSteps(second, 20)
	var got explained
	poll(t, "a sweep to wait after it lost a device to the other one", func() bool {
		for _, pair := range [][2]string{{first, second}, {second, first}} {
			got = c.explain(pair[0])
			// On a busy machine a simulation, which has a low priority, may not end in its time.
			if got.Cause == "devices" && strings.Contains(got.Lost, " got them, and "+pair[1]) && len(got.Outcomes) > 0 {
				return true
			}
		}
		return false
	})
	if !strings.Contains(got.Why, "of the 2 that it accepts") {
		t.Errorf("why it waits: %+v", got)
	}
	for _, want := range []string{"themis 1", "themis 2", "las 1", "drf 1"} {
		if !slices.ContainsFunc(got.Outcomes, func(o struct {
			Policy          string
			Weight, Seconds float64
		},
		) bool {
			return fmt.Sprint(o.Policy, " ", o.Weight) == want && o.Seconds > 0
		}) {
			t.Errorf("%s was not simulated: %+v", want, got.Outcomes)
		}
	}
	if !strings.Contains(got.Otherwise, "In simulations of the ledger "+got.ID) || !strings.Contains(got.Otherwise, "with weight 2") {
		t.Errorf("what else would have been: %s", got.Otherwise)
	}
	c.command(first, outbidv1.SweepCommand_SWEEP_COMMAND_PAUSE)
	if paused := c.explain(first + "/0"); paused.Cause != "paused" && paused.Cause != "done" || !strings.Contains(paused.Otherwise, "No other policy") {
		t.Errorf("of a trial of a paused sweep it says %+v", paused)
	}
}
