package endtoend

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/backup"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// command runs the program to its end, and returns what it printed and its exit code.
func command(t testing.TB, dir string, args ...string) (string, int) {
	t.Helper()
	p := start(t, dir, args...)
	<-p.ended
	text, _ := p.out.text()
	return text, p.cmd.ProcessState.ExitCode()
}

// batches returns the ledger's first n batches.
func (s *server) batches(n uint64) [][]byte {
	s.t.Helper()
	var all [][]byte
	r, err := s.ReadLedger(context.Background(), &outbidv1.ReadLedgerRequest{})
	err = drain(r, err, func(m *outbidv1.ReadLedgerResponse) error {
		if m.GetBatch().GetSeq() > n {
			return nil
		}
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m.GetBatch())
		all = append(all, data)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// steps is a script that trains to step 30, with a checkpoint of each step.
const steps = `i=0; if [ -n "$OUTBID_CHECKPOINT_IN" ]; then i=$(cat "$OUTBID_CHECKPOINT_IN"); fi
while [ $i -lt 30 ]; do i=$((i+1)); echo $i > "$OUTBID_CHECKPOINT_OUT"
echo '{{"step": '$i', "loss": 1, "checkpoint": "'$OUTBID_CHECKPOINT_OUT'"}}' >> "$OUTBID_REPORT"; sleep .1; done`

// TestABackupUnderLoadRestoresADestroyedCluster saves a cluster while clients report and trials run, kills it, destroys
// NATS, the store and the whole data directory, and restores it. Everything that was acknowledged before the backup
// began is there, the ledger up to the pin is byte for byte the same, and running and paused sweeps continue.
func TestABackupUnderLoadRestoresADestroyedCluster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, file := filepath.Join(dir, "data"), filepath.Join(dir, "cluster.backup")
	s := serve(t, dir, "up", "--devices", "cpu:2")
	running, paused := s.submit(shell("running", dir, steps, 4)), s.submit(shell("paused", dir, steps, 2))
	s.waitSteps(running, 5)
	if _, err := s.ControlSweep(t.Context(), &outbidv1.ControlSweepRequest{Sweep: paused, Command: outbidv1.SweepCommand_SWEEP_COMMAND_PAUSE}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SetSecret(t.Context(), &outbidv1.SetSecretRequest{Tenant: "default", Name: "KEY", Value: "hidden"}); err != nil {
		t.Fatal(err)
	}
	before := s.fill("before", 2000, 20)
	acknowledged := s.reported(before)

	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		s.fill("during", 4000, 20)
	}()
	if text, code := command(t, dir, "backup", "save", file, "--data", data, "--objects"); code != 0 {
		t.Fatal(text)
	}
	<-loaded
	f, err := backup.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	pin := f.Seq
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	want := s.batches(pin)
	if uint64(len(want)) != pin || pin == 0 {
		t.Fatalf("the pin is %d, the ledger has %d batches up to it", pin, len(want))
	}
	s.kill()
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}

	if text, code := command(t, dir, "backup", "restore", file, "--data", data); code != 0 {
		t.Fatal(text)
	}
	s = serve(t, dir, "up", "--devices", "cpu:2")
	got := s.batches(pin)
	for i := range want {
		if i >= len(got) || !bytes.Equal(want[i], got[i]) {
			t.Fatalf("batch %d of %d is not the same", i+1, pin)
		}
	}
	now := s.reported(before)
	for trial, reports := range acknowledged {
		if len(now[trial]) != len(reports) {
			t.Errorf("trial %d of %s has %d reports, %d were acknowledged", trial, before, len(now[trial]), len(reports))
		}
	}
	if text, code := command(t, dir, "audit", "verify", "--server", s.Info.API); code != 0 {
		t.Errorf("the audit after the restore: %s", text)
	}
	if r, err := s.ListSecrets(t.Context(), &outbidv1.ListSecretsRequest{}); err != nil || len(r.GetSecrets()) != 1 {
		t.Errorf("the secrets are %v, %v", r, err)
	}
	s.mustDone(running)
	if _, err := s.ControlSweep(t.Context(), &outbidv1.ControlSweepRequest{Sweep: paused, Command: outbidv1.SweepCommand_SWEEP_COMMAND_RESUME}); err != nil {
		t.Fatal(err)
	}
	s.mustDone(paused)
	for _, tr := range s.trials(running) {
		if tr.GetRestarts() > 0 {
			t.Errorf("trial %d of %s restarted %d times: its checkpoint is missing", tr.GetNumber(), running, tr.GetRestarts())
		}
	}
	if text, _ := s.doctor(dir); !strings.Contains(text, "clock") || strings.Contains(text, "damaged") {
		t.Errorf("doctor:\n%s", text)
	}
	s.stop()
	if text, code := command(t, dir, "backup", "restore", file, "--data", data); code != 2 || !strings.Contains(text, "contains a ledger: restore into a new directory") {
		t.Errorf("restoring over a ledger: exit %d, %s", code, text)
	}
	flipBit(t, file)
	if text, code := command(t, dir, "backup", "inspect", file); code == 0 {
		t.Errorf("a damaged backup: exit %d, %s", code, text)
	}
	if text, code := command(t, dir, "backup", "restore", file, "--data", filepath.Join(dir, "other")); code == 0 {
		t.Errorf("restoring a damaged backup: exit %d, %s", code, text)
	}
	if _, err := os.Stat(filepath.Join(dir, "other")); err == nil {
		t.Error("restoring a damaged backup wrote something")
	}
}
