package endtoend

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	nats "github.com/nats-io/nats-server/v2/server"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// configured starts a separate nats-server with a configuration and a store, and returns a function that stops it.
func configured(t *testing.T, dir, auth string) (url string, stop func()) {
	t.Helper()
	file := filepath.Join(dir, "nats.conf")
	text := "listen: 127.0.0.1:-1\nmax_payload: 8MB\njetstream { store_dir: '" + filepath.Join(dir, "store") + "', sync_interval: always }\n" + auth
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := nats.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	opts.NoSigs, opts.NoLog = true, true
	s, err := nats.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	stop = func() {
		s.Shutdown()
		s.WaitForShutdown()
	}
	t.Cleanup(stop)
	if !s.ReadyForConnections(patience) {
		t.Fatal("NATS does not start")
	}
	return s.ClientURL(), stop
}

// TestALedgerInANATSOfItsOwnComesOverFromBeforeThereWereUsers checks that one command transfers the ledger in a
// nats-server without users, as in earlier versions: sweeps, checkpoints and logs are complete, and sweeps that ended
// can be extended.
func TestALedgerInANATSOfItsOwnComesOverFromBeforeThereWereUsers(t *testing.T) {
	t.Parallel()
	dir, locks := t.TempDir(), t.TempDir()
	args := func(url string) []string {
		return []string{"serve", "--nats", url, "--data", filepath.Join(dir, "one"), "--store", filepath.Join(dir, "objects")}
	}
	worker := func(s *server, url string) *proc {
		return start(t, dir, "worker", "--nats", url, "--keys", s.Info.Keys, "--name", "w", "--devices", "cpu:2", "--dir",
			filepath.Join(dir, "w"))
	}
	url, stop := configured(t, dir, "")
	before := serveData(t, dir, "one", args(url)...)
	w := worker(before, url)
	id := before.submit(job{name: "old", mode: "well", tuner: random(3), trials: 2}.spec(t, locks))
	before.mustDone(id)
	kept := before.outcome(id)
	w.stop()
	before.stop()
	stop()

	keys := filepath.Join(dir, "one", "keys")
	initialise := func(flags ...string) (string, int) {
		return tool(t, dir, append([]string{"nats", "init", "--keys", keys, "--include", filepath.Join(dir, "auth.conf")}, flags...)...)
	}
	if text, code := initialise("--take-over", filepath.Join(dir, "nowhere")); code == 0 || !strings.Contains(text, "store_dir") {
		t.Errorf("a directory that is none: %d %s", code, text)
	}
	for _, want := range []string{"belongs to these keys now", "belongs to these keys already"} {
		if text, code := initialise("--take-over", filepath.Join(dir, "store")); code != 0 || !strings.Contains(text, want) {
			t.Errorf("want %q: %d %s", want, code, text)
		}
	}
	url, _ = configured(t, dir, "include 'auth.conf'\n")
	after := serveData(t, dir, "one", args(url)...)
	if got := after.outcome(id); got != kept {
		t.Errorf("before:\n%s\nafter:\n%s", kept, got)
	}
	worker(after, url)
	if _, err := after.ExtendSweep(t.Context(), &outbidv1.ExtendSweepRequest{Sweep: id, Trials: new(int32(3))}); err != nil {
		t.Fatal(err)
	}
	if sw := after.mustDone(id); sw.GetCounts().GetCompleted() != 3 {
		t.Errorf("after it was extended: %v", sw.GetCounts())
	}
}

// TestAForgottenTakeOverIsNoticed checks that a server without the transfer fails with a hint, instead of starting an
// empty ledger.
func TestAForgottenTakeOverIsNoticed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url, stop := configured(t, dir, "")
	before := serveData(t, dir, "one", "serve", "--nats", url, "--data", filepath.Join(dir, "one"))
	before.stop()
	stop()
	if text, code := tool(t, dir, "nats", "init", "--keys", filepath.Join(dir, "one", "keys"), "--include", filepath.Join(dir, "auth.conf")); code != 0 {
		t.Fatal(text)
	}
	url, _ = configured(t, dir, "include 'auth.conf'\n")
	p := start(t, dir, "serve", "--nats", url, "--data", filepath.Join(dir, "one"), "--api", "127.0.0.1:0")
	<-p.ended
	if text, _ := p.out.text(); p.cmd.ProcessState.ExitCode() == 0 || !strings.Contains(text, "outbid nats init --take-over") {
		t.Errorf("output:\n%s", text)
	}
	text, code := tool(t, dir, "nats", "init", "--keys", filepath.Join(dir, "one", "keys"), "--include", filepath.Join(dir, "auth.conf"),
		"--take-over", filepath.Join(dir, "store"))
	if code == 0 || !strings.Contains(text, "move the first away") {
		t.Errorf("with streams of both: %d %s", code, text)
	}
}
