package program

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// ranks records the variables of each process, and every rank reports, but only reports of rank 0 count.
const ranks = `
echo "$RANK/$WORLD_SIZE local $LOCAL_RANK/$LOCAL_WORLD_SIZE group $GROUP_RANK/$GROUP_WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT" > "$RANKS/$RANK"
echo "{\"step\": 2, \"loss\": 0.$RANK}" >> $OUTBID_REPORT
echo "from rank $RANK" > $OUTBID_CHECKPOINT_OUT
`

func gangSpec(t *testing.T, script string, gang *outbidv1.Gang) (spec Spec, dir string) {
	t.Helper()
	spec = newSpec(t, 2, script)
	dir = t.TempDir()
	spec.Env = append(spec.Env, "RANKS="+dir)
	spec.Gang = gang
	return spec, dir
}

func told(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.TrimSpace(string(data)))
	}
	return all
}

func TestOneProcessForEachDevice(t *testing.T) {
	t.Parallel()
	spec, dir := gangSpec(t, ranks, &outbidv1.Gang{Ranks: 2, Places: 1, Address: "here", Port: 29501, PerDevice: true})
	run, r := start(t, spec)
	r.await(t, "report 2 loss 0")
	if saved := <-r.events; !strings.HasPrefix(saved, "saved 2 from rank 0 <nil>") {
		t.Errorf("got %q", saved)
	}
	r.await(t, "reached 2")
	run.Direct(outbidv1.Verdict_VERDICT_STOP, 2, "")
	r.awaitEnd(t, outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, 2)
	want := []string{"0/2 local 0/2 group 0/1 at here:29501", "1/2 local 1/2 group 0/1 at here:29501"}
	if got := told(t, dir); !slices.Equal(got, want) {
		t.Errorf("the ranks got %q", got)
	}
}

// Rank 1 fails: rank 0, which would wait for it endlessly, is stopped, and the trial fails with rank 1's reason.
func TestOneFailureEndsEveryRank(t *testing.T) {
	t.Parallel()
	spec, _ := gangSpec(t, `if [ $RANK = 1 ]; then echo "rank 1 has no data" >&2; exit 3; fi; exec sleep 600`,
		&outbidv1.Gang{Ranks: 2, Places: 1, Address: "here", PerDevice: true})
	_, r := start(t, spec)
	r.awaitEnd(t, outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, 0)
	if detail := r.ended.GetDetail(); !strings.Contains(detail, "code 3") || !strings.Contains(detail, "rank 1 has no data") {
		t.Errorf("it failed with %q", detail)
	}
}

// The part of a gang without rank 0 reports nothing, waits for an order when its processes have ended, and ends by
// it.
func TestAFollowerWaitsForWord(t *testing.T) {
	t.Parallel()
	spec, dir := gangSpec(t, ranks, &outbidv1.Gang{FirstRank: 1, Ranks: 3, Place: 1, Places: 2, Address: "there", Port: 1, PerDevice: true})
	run, r := start(t, spec)
	run.Direct(outbidv1.Verdict_VERDICT_TRAIN, 2, "")
	run.mu.Lock()
	group := run.current
	run.mu.Unlock()
	<-group.Done()
	run.Direct(outbidv1.Verdict_VERDICT_PAUSE, 2, "")
	r.awaitEnd(t, outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, 0)
	want := []string{"1/3 local 0/2 group 1/2 at there:1", "2/3 local 1/2 group 1/2 at there:1"}
	if got := told(t, dir); !slices.Equal(got, want) {
		t.Errorf("the ranks got %q", got)
	}
}
