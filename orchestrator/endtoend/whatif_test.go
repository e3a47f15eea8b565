package endtoend

import (
	"encoding/json"
	"slices"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// simulation is the output of `outbid what-if -o json`.
type simulation struct {
	Assumptions []string
	Runs        []struct {
		Policy string
		Weight float64
		Sweeps []struct {
			Sweep         string
			Seconds, Rho  *float64
			DeviceSeconds float64 `json:"device_seconds"`
		}
	}
}

// outbid runs a command of outbid to its end and returns its standard output.
func (c *cluster) outbid(args ...string) string {
	c.t.Helper()
	p := start(c.t, c.dir, append(args, "--server", c.Info.API)...)
	<-p.ended
	text, _ := p.out.text()
	if p.err != nil {
		c.t.Fatalf("outbid %v: %v\n%s", args, p.err, text)
	}
	return text
}

// TestASweepIsWeighedAnnotatedAndSimulated lets two sweeps share two devices, gives one more weight while it runs, and
// annotates it. After the server was killed both are still there. A simulation then says how they fared, and would fare.
func TestASweepIsWeighedAnnotatedAndSimulated(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--policy", "themis", "--policy-option", "lease=2s")
	c.worker("a", "cpu:2", "")
	var ids []string
	for _, name := range []string{"first", "second"} {
		tuner := &outbidv1.Tuner{Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{MaxSteps: 20}}}
		ids = append(ids, c.submit(job{name: name, mode: "well", tuner: tuner, trials: 6, env: map[string]string{"PACE": "20ms"}}.spec(t, c.locks)))
	}
	c.outbid("extend", ids[1], "--weight", "3")
	c.outbid("annotate", ids[1], "--description", "Heavier <b>than\nthe first", "--tag", "old,good")
	c.outbid("annotate", ids[1], "--remove-tag", "old")
	c.kill()
	c.restart()
	for _, id := range ids {
		c.mustDone(id)
	}
	got, err := c.GetSweep(t.Context(), &outbidv1.GetSweepRequest{Sweep: ids[1]})
	if a := got.GetSweep().GetAnnotation(); err != nil || a.GetDescription() != "Heavier <b>than\nthe first" || !slices.Equal(a.GetTags(), []string{"good"}) {
		t.Errorf("the annotation is %v, %v", a, err)
	}
	if w := got.GetSweep().GetSpec().GetWeight(); w != 3 {
		t.Errorf("the weight is %v", w)
	}
	var s simulation
	if err := json.Unmarshal([]byte(c.outbid("what-if", "--policy", "fifo,las", "--sweep", ids[0], "--weight", "5", "-o", "json")), &s); err != nil {
		t.Fatal(err)
	}
	var runs []string
	for _, run := range s.Runs {
		runs = append(runs, run.Policy)
		for i, sweep := range run.Sweeps {
			if sweep.Sweep != ids[i] || sweep.Seconds == nil || *sweep.Seconds <= 0 || sweep.Rho == nil || sweep.DeviceSeconds <= 0 {
				t.Errorf("under %q: %+v", run.Policy, sweep)
			}
		}
	}
	if !slices.Equal(runs, []string{"", "themis", "themis", "fifo", "las"}) || s.Runs[2].Weight != 5 || len(s.Assumptions) == 0 {
		t.Errorf("the runs are %q: %+v", runs, s)
	}
}
