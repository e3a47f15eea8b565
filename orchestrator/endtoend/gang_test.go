package endtoend

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// ranks is a data-parallel program. Its processes find each other (here by files in a shared directory), rank 0 reports
// and saves, and none continues while another is missing.
const ranks = `
meet="$MEET/$OUTBID_TRIAL-$OUTBID_START_STEP-$OUTBID_UNTIL_STEP"
mkdir -p "$meet"
echo "$RANK of $WORLD_SIZE, local $LOCAL_RANK, port $MASTER_PORT" > "$meet/$RANK.tmp"; mv "$meet/$RANK.tmp" "$meet/$RANK"
while [ "$(ls "$meet" | grep -vc tmp)" -lt "$WORLD_SIZE" ]; do sleep 0.02; done
[ "$RANK" = 0 ] || exit 0
step=$OUTBID_START_STEP
[ -z "$OUTBID_CHECKPOINT_IN" ] || [ "$(cat "$OUTBID_CHECKPOINT_IN")" = "$step" ] || exit 9
while [ $step -lt $OUTBID_UNTIL_STEP ]; do
  step=$((step+1)); sleep 0.05; echo "{{\"step\": $step, \"loss\": $step.$OUTBID_TRIAL}}" >> "$OUTBID_REPORT"
done
echo $step > "$OUTBID_CHECKPOINT_OUT"
`

func gangSpec(meet string, devices int32, spread bool) *outbidv1.SweepSpec {
	return &outbidv1.SweepSpec{
		Name: "gang", Metric: "loss", Mode: "min",
		Space: map[string]*outbidv1.Parameter{
			"lr": {Kind: &outbidv1.Parameter_Float{Float: &outbidv1.FloatRange{Low: 0, High: 1}}},
		},
		Tuner: &outbidv1.Tuner{Kind: &outbidv1.Tuner_SuccessiveHalving{SuccessiveHalving: &outbidv1.SuccessiveHalving{
			MaxSteps: 9, Trials: 3, Eta: 3, MinSteps: 3,
		}}},
		Resources: &outbidv1.Resources{
			Devices: &outbidv1.DeviceCount{Min: devices, Max: devices}, Spread: spread, Processes: "per_device",
		},
		Workload: &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{
			Command: []string{"sh", "-c", ranks}, Env: map[string]string{"MEET": meet},
		}},
	}
}

// TestAGangRunsOverNodes runs one trial over two nodes with one device each and a node with two. Its ranks run at the
// same time and meet, and it is promoted from its checkpoint.
func TestAGangRunsOverNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.worker("a", "cpu:1", "")
	c.worker("b", "cpu:2", "")
	meet := t.TempDir()
	id := c.submit(gangSpec(meet, 3, true))
	c.mustDone(id)
	longest := int64(0)
	for _, trial := range c.trials(id) {
		longest = max(longest, trial.GetStep())
	}
	if longest != 9 {
		t.Errorf("the longest trial did %d steps", longest)
	}
	rooms, err := filepath.Glob(filepath.Join(meet, "*"))
	if err != nil || len(rooms) != 4 {
		t.Fatalf("they met %d times, want 3 first phases and a second: %v", len(rooms), err)
	}
	for _, room := range rooms {
		var said []string
		for _, rank := range []string{"0", "1", "2"} {
			data, err := os.ReadFile(filepath.Join(room, rank))
			if err != nil {
				t.Fatal(err)
			}
			text, _, _ := strings.Cut(string(data), ", port")
			said = append(said, text)
		}
		// Rank 0 is on the node with more devices.
		if want := []string{"0 of 3, local 0", "1 of 3, local 1", "2 of 3, local 0"}; !slices.Equal(said, want) {
			t.Errorf("the ranks got %q", said)
		}
	}
}

// TestAGangLosesANode checks that when a node of a gang is lost, the rest of the gang is stopped, its devices become
// free, and the trial continues when the gang can be complete again.
func TestAGangLosesANode(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.worker("a", "cpu:1", "")
	c.worker("b", "cpu:1", "")
	spec := gangSpec(t.TempDir(), 2, true)
	spec.Tuner.GetSuccessiveHalving().MaxSteps, spec.Tuner.GetSuccessiveHalving().MinSteps = 90, 30
	id := c.submit(spec)
	c.waitSteps(id, 8)
	shown := start(t, c.dir, "show", id+"/0", "--server", c.Info.API)
	<-shown.ended
	if text, _ := shown.out.text(); !strings.Contains(text, "a:0 (cpu)") || !strings.Contains(text, "b:0 (cpu)") {
		t.Errorf("outbid show prints for the gang:\n%s", text)
	}
	if leases := c.trials(id)[0].GetLeases(); len(leases) != 1 || len(leases[0].GetPlaces()) != 2 || leases[0].GetState() != "running" ||
		leases[0].GetStep() == 0 {
		t.Errorf("the API shows the gang with %v", leases)
	}
	c.workers["b"].kill()
	poll(t, "the gang to end on the node that is left", func() bool {
		counts := c.sweep(id).GetCounts()
		return counts.GetRunning() == 0 && counts.GetQueued() > 0
	})
	if why := c.sweep(id).GetWaiting(); !strings.Contains(why, "the cluster does not have 2 devices") {
		t.Errorf("it waits because %q", why)
	}
	c.worker("b", "cpu:1", "")
	c.mustDone(id)
}
