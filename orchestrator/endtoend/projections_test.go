package endtoend

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// flipBit flips one bit in the middle of a file.
func flipBit(t testing.TB, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// doctor returns the doctor's output for a server, and its exit code.
func (s *server) doctor(dir string) (string, int) {
	s.t.Helper()
	p := start(s.t, dir, "doctor", "--server", s.Info.API)
	<-p.ended
	text, _ := p.out.text()
	return text, p.cmd.ProcessState.ExitCode()
}

// TestAFlippedBitInTheHistory checks that a flipped bit in the history of reports costs only one line in the log: reads
// return every report, and the doctor reports the repair.
func TestAFlippedBitInTheHistory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, dir, "up", "--devices", "cpu:1")
	id := s.fill("kept", 4000, 50)
	want := s.reported(id)
	s.stop() // so that the reports are in the file
	s = serve(t, dir, "up", "--devices", "cpu:1")
	path := filepath.Join(dir, "data", "history", id+".reports")
	flipBit(t, path)
	if text, _ := s.doctor(dir); !strings.Contains(text, "the reports of 1 of 1 sweeps are complete; damaged files of 1 sweeps ("+id+") were rebuilt from the ledger") {
		t.Errorf("doctor:\n%s", text)
	}
	flipBit(t, path)
	resp, err := http.Get(s.Info.API + "/v1/sweeps/" + id + "/reports")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("reports over REST: %v, %v", resp, err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	got := s.reported(id)
	for trial, steps := range want {
		if len(got[trial]) != len(steps) {
			t.Errorf("trial %d has %d reports, want %d", trial, len(got[trial]), len(steps))
		}
	}
	if text, _ := s.out.text(); strings.Count(text, "level=WARN") != 2 || !strings.Contains(text, "is damaged; rebuilding it from the ledger") {
		t.Errorf("the log has, after two damages:\n%s", text)
	}
	s.stop()
}

// TestDamagedFilesOfTheDataDirectory checks that the server starts without a loss although any small file of the data
// directory, except the keys and the ledger, is damaged: each is rebuilt or ignored.
func TestDamagedFilesOfTheDataDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, dir, "up", "--devices", "cpu:1")
	id := s.fill("kept", 1000, 50)
	want := len(s.reported(id))
	for _, file := range []string{"history/complete-to", "history/ledger-end", "uptime.json", "server.json", "history/" + id + ".reports"} {
		for how, spoil := range map[string]func(string) error{
			"a bit flips":    func(path string) error { flipBit(t, path); return nil },
			"it is cut":      func(path string) error { return os.Truncate(path, 3) },
			"it is replaced": func(path string) error { return os.WriteFile(path, []byte("\x00{\xff 99999999999999999999999"), 0o600) },
			"it is gone":     os.Remove,
		} {
			path := filepath.Join(dir, "data", file)
			s.kill()                                 // server.json remains
			if _, err := os.Stat(path); err != nil { // the uptime is recorded every ten seconds
				if err := os.WriteFile(path, []byte(`{"boot":"x","uptime_ns":1,"at":"2026-01-01T00:00:00Z"}`), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := spoil(path); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			s = serve(t, dir, "up", "--devices", "cpu:1")
			if got := len(s.reported(id)); got != want {
				t.Errorf("%s, %s: reports of %d trials, want %d", file, how, got, want)
			}
			if sw := s.sweep(id); sw.GetState() != outbidv1.SweepState_SWEEP_STATE_RUNNING {
				t.Errorf("%s, %s: the sweep is %v", file, how, sw)
			}
		}
	}
	s.stop()
}
