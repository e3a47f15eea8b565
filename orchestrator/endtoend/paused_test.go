package endtoend

import (
	"fmt"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TestAPausedWorkersTrialRunsOnce checks that the trial of a worker that is paused alone, without its trials, ends before
// another worker gets it. The training code is a child of the program, as below a shell.
func TestAPausedWorkersTrialRunsOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.worker("a", "cpu:1", "")
	id := c.submit(job{
		name: "paused", mode: "well", tuner: random(60), trials: 1, env: map[string]string{"PACE": "100ms", "LOCK_TRIALS": "1"},
		change: func(s *outbidv1.SweepSpec) {
			p := s.GetProgram()
			p.Command = []string{"sh", "-c", fmt.Sprintf("%q; exit $?", p.GetCommand()[0])}
		},
	}.spec(t, c.locks))
	c.waitSteps(id, 4)
	c.worker("b", "cpu:1", "")
	a.pause()
	step := c.trials(id)[0].GetStep()
	poll(t, "the trial trains on another node", func() bool {
		trial := c.trials(id)[0]
		return trial.GetNode() == "b" && trial.GetLast().GetStep() > step
	})
	a.resume()
	a.until("its watchdog has ended all trials here")
	c.mustDone(id)
	if trial := c.trials(id)[0]; trial.GetRestarts() != 0 {
		t.Errorf("the trial was charged %d restarts", trial.GetRestarts())
	}
	noTwoOwners(t, c.locks)
}
