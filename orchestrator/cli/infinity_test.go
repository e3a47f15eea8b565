package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// boundless has four trials. The first reports only an infinity, which would be the best if it were finite. The second
// reports only NaN. The third reports an infinity between numbers. The fourth reports a worse number.
const boundless = `
name: boundless
space: {x: {float: {low: 0, high: 1}}}
metric: loss
mode: MODE
tuner: TUNER
limits: {trials: 4}
program:
  shell: |
    step=$OUTBID_START_STEP
    while [ "$step" -lt "$OUTBID_UNTIL_STEP" ]; do
      step=$((step + 1))
      case "$OUTBID_TRIAL" in
        0) v=INF;;
        1) v=NaN;;
        2) v=INF; if [ "$step" -ne 2 ]; then v=GOOD; fi;;
        *) v=WORSE;;
      esac
      echo "{{\"step\": $step, \"loss\": $v}}" >> "$OUTBID_REPORT"
    done
    echo "{x}" > "$OUTBID_CHECKPOINT_OUT"
`

// TestInfinitiesAndNaNAreNeverTheBest checks that, under any tuner, neither the command line nor REST shows a value
// that is not finite as the best.
func TestInfinitiesAndNaNAreNeverTheBest(t *testing.T) {
	t.Parallel()
	u := startServer(t, "up", "--data", t.TempDir(), "--api", "127.0.0.1:0", "--devices", "cpu:4")
	for _, tuner := range []string{
		"{random: {max_steps: 3}, seed: 1}", "{asha: {max_steps: 3}, seed: 1}", "{median: {max_steps: 3}, seed: 1}",
		"{performance_curve: {max_steps: 3}, seed: 1}", "{freeze_thaw: {max_steps: 3}, seed: 1}", "{pbt: {max_steps: 3, interval: 1, population: 4}, seed: 1}",
	} {
		for mode, words := range map[string]*strings.Replacer{
			"min": strings.NewReplacer("MODE", "min", "TUNER", tuner, "INF", "-Infinity", "GOOD", "0.25", "WORSE", "0.75"),
			"max": strings.NewReplacer("MODE", "max", "TUNER", tuner, "INF", "Infinity", "GOOD", "0.25", "WORSE", "0.125"),
		} {
			t.Run(tuner+" "+mode, func(t *testing.T) {
				t.Parallel()
				u.boundless(t, words.Replace(boundless))
			})
		}
	}
}

func (u *upApp) boundless(t *testing.T, sweep string) {
	t.Helper()
	id := strings.Fields(u.command(t, exitOK, "submit", writeFile(t, "sweep.yaml", sweep)))[0]
	u.command(t, exitOK, "watch", id)
	var best []struct {
		Trial  int     `json:"trial"`
		Metric float64 `json:"metric"`
	}
	text := u.command(t, exitOK, "best", id, "-o", "json")
	if err := json.Unmarshal([]byte(text), &best); err != nil || len(best) != 1 || best[0].Trial != 2 || best[0].Metric != 0.25 {
		t.Errorf("best says (%v):\n%s", err, text)
	}
	resp, err := http.Get(u.file.API + "/v1/sweeps/" + id)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Sweep struct {
			State string
			Best  struct {
				Number int
				Best   float64
				Last   struct{ Step string }
			}
		}
	}
	if err := json.Unmarshal(data, &answer); err != nil || answer.Sweep.Best.Number != 2 || answer.Sweep.Best.Best != 0.25 {
		t.Errorf("REST says (%v):\n%s", err, data)
	}
	if answer.Sweep.State != "SWEEP_STATE_DONE" {
		t.Errorf("it ended as %s", answer.Sweep.State)
	}
	// If trials reach a rung one by one, the worse one may have passed it before the best one arrived. Then the best
	// one is stopped at step 1, before it reports an infinity.
	expected := 3
	if answer.Sweep.Best.Last.Step == "1" {
		expected = 2
	}
	if worst := strings.Count(string(data), "it counts as the worst value"); worst != expected || !strings.Contains(string(data), "reported NaN for loss") ||
		!strings.Contains(string(data), "Infinity for loss at step 1") {
		t.Errorf("%d trials report what is no number, and the notes say so %d times:\n%s", expected, worst, data)
	}
}
