package endtoend

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/identity"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TestStorageThatIsNearlyFull checks that new sweeps are rejected with that reason, and running ones continue, after
// NATS has used 95 % of its storage.
func TestStorageThatIsNearlyFull(t *testing.T) {
	t.Parallel()
	const limit = 64 << 20
	dir, locks := t.TempDir(), t.TempDir()
	keys, err := identity.MakeKeys(filepath.Join(dir, "keys"))
	if err != nil {
		t.Fatal(err)
	}
	auth, err := keys.NATSConfig()
	if err != nil {
		t.Fatal(err)
	}
	port := freePorts(t, 1)[0]
	conf := filepath.Join(dir, "nats.conf")
	text := fmt.Sprintf("listen: 127.0.0.1:%d\njetstream { store_dir: %q, max_file_store: %d }\nmax_payload: 1MB\n%s", port, filepath.Join(dir, "nats"), limit, auth)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	startCommand(t, dir, natsServer(t), "--config", conf)
	poll(t, "NATS", func() bool { return !portIsFree(port) })
	url := fmt.Sprintf("nats://127.0.0.1:%d", port)
	s := serve(t, dir, "serve", "--nats", url, "--keys", filepath.Join(dir, "keys"))
	start(t, dir, "worker", "--nats", url, "--keys", filepath.Join(dir, "keys"), "--name", "w", "--devices", "cpu:1", "--dir", filepath.Join(dir, "w"))
	healthy := s.submit(job{name: "healthy", mode: "well", tuner: random(1_000_000), trials: 1}.spec(t, locks))
	s.waitSteps(healthy, 3)
	filler := s.external("filler", 1)
	asked, err := s.AskTrial(t.Context(), &outbidv1.AskTrialRequest{Sweep: filler.sweep, Client: "test"})
	if err != nil {
		t.Fatal(err)
	}
	const each = 50_000
	for step := range int64(limit * 96 / 100 / each) {
		_, err := s.TellTrial(t.Context(), &outbidv1.TellTrialRequest{
			Sweep: filler.sweep, Trial: asked.GetTrial().GetNumber(), LeaseId: asked.GetLeaseId(), Reports: []*outbidv1.Report{bigReport(step+1, each)},
		})
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
	}
	poll(t, "a sweep that is refused", func() bool { // the server checks every ten seconds
		spec := job{name: "more", tuner: random(1), trials: 1}.bare()
		spec.Workload = &outbidv1.SweepSpec_External{External: &outbidv1.External{}}
		_, err = s.SubmitSweep(t.Context(), &outbidv1.SubmitSweepRequest{Spec: spec})
		return err != nil
	})
	alerts := newAlertTest(t, map[string]string{"a": s.Info.API})
	alerts.fires("OutbidLedgerStorage")
	alerts.check()
	doctorFinds(t, "JetStream has used 80 % of its limit", "--server", s.Info.API)
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "max_file_store") {
		t.Errorf("a further sweep is refused: %v", err)
	}
	if _, err := s.TellTrial(t.Context(), &outbidv1.TellTrialRequest{
		Sweep: filler.sweep, Trial: asked.GetTrial().GetNumber(), LeaseId: asked.GetLeaseId(), Reports: []*outbidv1.Report{bigReport(1_000_000, 10)},
	}); err != nil {
		t.Errorf("a sweep that runs: %v", err)
	}
	s.waitSteps(healthy, s.sweep(healthy).GetSteps()+5)
	s.stop()
}
