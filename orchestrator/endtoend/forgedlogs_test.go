package endtoend

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// says publishes forged output of a trial, in the name of a worker.
func (th *thief) says(t *testing.T, node, tenant string, fork *outbidv1.ForkRef, text string) {
	t.Helper()
	c := &outbidv1.LogChunk{Fork: fork, Node: node, Tenant: tenant, Stream: "stdout", Data: []byte(text + "\n")}
	data, err := proto.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := th.nc.Publish(bus.LogSubject(c), data); err != nil {
		t.Fatal(err)
	}
}

// leaseOf returns the lease under which a trial saved its newest checkpoint.
func leaseOf(t *testing.T, trial *outbidv1.Trial) *outbidv1.ForkRef {
	t.Helper()
	saved := trial.GetCheckpoints()
	key := saved[len(saved)-1].GetKey()
	lease, err := strconv.ParseUint(strings.TrimSuffix(key[strings.LastIndex(key, "-")+1:], ".ckpt"), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return &outbidv1.ForkRef{Sweep: trial.GetSweep(), Trial: trial.GetNumber(), LeaseId: lease}
}

// waits runs two trials of a tenant that save and then wait for a file. It returns one that runs on the given node.
func (s *stronghold) waits(t *testing.T, who *server, node, file string) *outbidv1.Trial {
	t.Helper()
	spec := job{name: "waits", tuner: random(9), trials: 2}.bare()
	spec.Workload = &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{Command: []string{"sh", "-ec", `echo "begun"
echo saved > "$OUTBID_CHECKPOINT_OUT"
echo '{{"step":1,"loss":1,"checkpoint":"'"$OUTBID_CHECKPOINT_OUT"'"}}' >> "$OUTBID_REPORT"
while ! test -e "$GO"; do sleep .1; done`}, Env: map[string]string{"GO": file}, Grace: "1s"}}
	id := who.submit(spec)
	var found *outbidv1.Trial
	poll(t, "a trial on "+node, func() bool {
		for _, trial := range who.trials(id) {
			if trial.GetNode() == node && len(trial.GetCheckpoints()) > 0 {
				found = trial
			}
		}
		return found != nil
	})
	return found
}

// TestAWorkerPrintsOnlyForItsOwnTrials checks that the holder of a worker's key cannot add output to other workers'
// trials, although NATS permits any message under its name. Output of the worker's trials is stored, even if it arrives
// late.
func TestAWorkerPrintsOnlyForItsOwnTrials(t *testing.T) {
	t.Parallel()
	s := newStronghold(t)
	ada, bob := s.as(t, "ada"), s.as(t, "bob")
	open := openDir(t)
	victim, _, _ := s.victim(t, ada, open)
	node, other := ada.trials(victim)[0].GetNode(), "gpu-1"
	if node == other {
		other = "gpu-2"
	}
	th := s.thief(t, other)
	file := filepath.Join(open, "go")
	own := s.waits(t, bob, other, file)
	hears := func(text string) {
		t.Helper()
		poll(t, text, func() bool { return slices.Contains(bob.printed(own.GetSweep(), 0), text) })
	}
	forge := func() {
		t.Helper()
		target := leaseOf(t, ada.trials(victim)[0])
		for lease := range uint64(20) { // an attacker who does not know the lease tries them all
			fork := &outbidv1.ForkRef{Sweep: victim, Trial: target.GetTrial(), LeaseId: lease}
			for _, tenant := range []string{"vision", "speech", "default"} {
				th.says(t, other, tenant, fork, "forged")
			}
		}
		th.says(t, other, "vision", leaseOf(t, own), "forged") // its own trial, into another tenant's stream
		th.says(t, other, "vision", target, "forged")
	}
	forge()
	th.says(t, other, "speech", leaseOf(t, own), "its own")
	hears("its own")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	bob.wait(own.GetSweep())
	forge()
	th.says(t, other, "speech", leaseOf(t, own), "late")
	hears("late")
	// Earlier messages on the same connection were checked earlier.
	if lines := ada.printed(victim, 0); len(lines) != 0 {
		t.Errorf("the victim, which prints nothing, has %d lines of output", len(lines))
	}
	for _, line := range bob.printed(own.GetSweep(), 0) {
		if line == "forged" {
			t.Error("a line for one tenant is shown to another")
		}
	}
	s.proc.until("it sent output of a trial that it does not run")
}
