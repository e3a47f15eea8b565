package endtoend

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// spotGrace is how long a machine lives after its notice. Clouds give 30 s or two minutes.
const spotGrace = 5 * time.Second

// TestASpotNoticeLosesNoStep gives the node of two trials a notice, and kills its worker and everything on it after
// spotGrace. The trials save only when they are asked to, so a step is lost only if the notice did not save it.
func TestASpotNoticeLosesNoStep(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "notice")
	var noticed atomic.Bool
	ec2 := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !noticed.Load() {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprintf(w, `{"action": "terminate", "time": %q}`, time.Now().Add(spotGrace).UTC().Format(time.RFC3339))
	}))
	t.Cleanup(ec2.Close)
	for name, tc := range map[string]struct {
		source string
		notice func() error
		reason string
	}{
		"file": {"file:" + file, func() error { return os.WriteFile(file, []byte("reclaimed\n"), 0o600) }, "spot notice: reclaimed"},
		"http": {ec2.URL + "/latest/meta-data/spot/instance-action", func() error { noticed.Store(true); return nil }, "spot notice: terminate at "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.worker("spot", "cpu:2", "", "--spot-notice", tc.source)
			id := c.submit(job{
				name: "spot", mode: "well", tuner: random(400), trials: 2, env: map[string]string{"PACE": "50ms", "SAVES": "asked"},
			}.spec(t, c.locks))
			c.waitSteps(id, 20)
			c.worker("calm", "cpu:2", "")
			poll(t, "the other node", func() bool { return len(c.nodes()) == 2 })
			ends := time.NewTimer(spotGrace)
			began := time.Now()
			if err := tc.notice(); err != nil {
				t.Fatal(err)
			}
			poll(t, "both trials on the other node", func() bool {
				trials := c.trials(id)
				return len(trials) == 2 && onNode(trials[0], "calm") && onNode(trials[1], "calm")
			})
			moved := time.Since(began)
			if moved > spotGrace {
				t.Errorf("the trials moved after %s", moved)
			}
			if text := c.says(c.dir, "nodes"); !strings.Contains(text, "drained") || !strings.Contains(text, tc.reason) {
				t.Errorf("outbid nodes prints\n%s", text)
			}
			<-ends.C
			c.workers["spot"].kill()
			c.mustDone(id)
			lost, starts := c.lostSteps(id)
			t.Logf("%s: the trials trained on the other node after %s; %d steps were lost in %d starts", name, moved.Round(time.Millisecond), lost, starts)
			if lost != 0 || starts != 4 {
				t.Errorf("%d steps were lost in %d starts", lost, starts)
			}
			for _, trial := range c.trials(id) {
				if trial.GetRestarts() != 0 || trial.GetNodeLosses() != 0 {
					t.Errorf("trial %d has %d restarts and %d lost nodes", trial.GetNumber(), trial.GetRestarts(), trial.GetNodeLosses())
				}
			}
			noTwoOwners(t, c.locks)
		})
	}
}

// onNode reports whether a trial trains on a node.
func onNode(trial *outbidv1.Trial, node string) bool {
	leases := trial.GetLeases()
	return trial.GetNode() == node && len(leases) == 1 && leases[0].GetState() == "running"
}

// lostSteps returns how many reported steps of a sweep's trials were trained again, and how many processes they had.
func (s *server) lostSteps(id string) (lost int64, starts int) {
	s.t.Helper()
	reached := map[int32]int64{}
	s.events(func(e *outbidv1.Event) {
		if r := e.GetTrialReported(); r.GetSweep() == id {
			reached[r.GetTrial()] = r.GetReport().GetStep()
		}
		if f := e.GetForkStarted(); f.GetSweep() == id {
			starts++
			lost += max(0, reached[f.GetTrial()]-f.GetFromStep())
		}
	})
	return lost, starts
}
