package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/outbid-dev/outbid/orchestrator/identity"
)

// joined creates a token, has a worker join with it, and returns the directory of its credentials.
func (u *upApp) joined(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	u.command(t, exitOK, "worker", "join", "--join-token", u.joinToken(t, name), "--credentials", dir)
	return dir
}

// joinToken creates a token and returns its file.
func (u *upApp) joinToken(t *testing.T, name string, more ...string) string {
	t.Helper()
	token := strings.Fields(u.command(t, exitOK, append([]string{"worker", "token", "--name", name}, more...)...))[0]
	return writeFile(t, "join", token+"\n")
}

func TestAWorkerJoinsWorksAndIsRemoved(t *testing.T) {
	t.Parallel()
	s := startServer(t, "serve", "--data", t.TempDir(), "--api", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0")
	dir := s.joined(t, "far")
	for name, mode := range map[string]os.FileMode{"": 0o700, "nats.creds": 0o600, "worker.json": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
	}
	w := newTestApp(nil, map[string]string{"HOME": t.TempDir()})
	w.now = time.Now
	done := w.start(t.Context(), "worker", "--credentials", dir, "--devices", "v100:2", "--dir", filepath.Join(t.TempDir(), "w"))
	if got := s.command(t, exitOK, "run", "-"); !strings.Contains(got, "real-1 done") {
		t.Fatalf("run printed:\n%s", got)
	}
	if got := s.command(t, exitOK, "nodes", "-o", "json"); !strings.Contains(got, `"trusted":true`) {
		t.Errorf("nodes printed:\n%s", got)
	}
	s.command(t, exitOK, "worker", "remove", "far")
	w.err.waitFor(t, "lost the connection to NATS")
	again := newTestApp(nil, map[string]string{"HOME": t.TempDir()})
	wantExit(t, again, again.start(t.Context(), "worker", "--credentials", dir, "--devices", "cpu:1", "--dir", t.TempDir()), exitUnreachable)
	if !strings.Contains(again.err.String(), "outbid worker join") {
		t.Errorf("a removed worker is told:\n%s", again.err)
	}
	if got := s.command(t, exitUsage, "worker", "remove", "far"); !strings.Contains(got, "far") || strings.Count(got, "\n") != 1 {
		t.Errorf("removed again: %s", got)
	}
	w.signals <- os.Interrupt
	wantExit(t, w, done, exitOK)
	// The same name joins with another token and key.
	back := newTestApp(nil, map[string]string{"HOME": t.TempDir()})
	back.now = time.Now
	returned := back.start(t.Context(), "worker", "--credentials", s.joined(t, "far"), "--devices", "cpu:1", "--dir",
		filepath.Join(t.TempDir(), "w"))
	if got := s.command(t, exitOK, "run", "-"); !strings.Contains(got, "real-2 done") {
		t.Errorf("after it joined again run printed:\n%s", got)
	}
	back.signals <- os.Interrupt
	wantExit(t, back, returned, exitOK)
}

func TestJoiningIsRefusedWithOneClearLine(t *testing.T) {
	t.Parallel()
	s := startServer(t, "serve", "--data", t.TempDir(), "--api", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0")
	used, brief := s.joinToken(t, "a"), s.joinToken(t, "a", "--expires", "1ns")
	s.command(t, exitOK, "worker", "join", "--join-token", used, "--credentials", t.TempDir())
	for _, tc := range []struct {
		want string
		code int
		args []string
	}{
		{"was already used at", exitFailed, []string{"join", "--join-token", used, "--credentials", t.TempDir()}},
		{"expired at", exitFailed, []string{"join", "--join-token", brief, "--credentials", t.TempDir()}},
		{"for the worker b, not for c", exitFailed, []string{"join", "--join-token", s.joinToken(t, "b"), "--name", "c", "--credentials", t.TempDir()}},
		{"did not create this token", exitFailed, []string{"join", "--join-token", writeFile(t, "x", "outbid_join_abc"), "--credentials", t.TempDir()}},
		{"starts with outbid_join_", exitFailed, []string{"join", "--join-token", writeFile(t, "x", strings.Repeat("ab", 32)), "--credentials", t.TempDir()}},
		{"--join-token is missing", exitUsage, []string{"join", "--credentials", t.TempDir()}},
		{"--join-token: nowhere: no such file", exitUsage, []string{"join", "--join-token", "nowhere"}},
		{"want a file with the token", exitUsage, []string{"join", "--join-token", writeFile(t, "x", "a b")}},
		{"--name is missing", exitUsage, []string{"token"}},
		{"node: node \"a.b\"", exitUsage, []string{"token", "--name", "a.b"}},
		{"life: must be more than 0", exitUsage, []string{"token", "--name", "a", "--expires", "-1s"}},
		{"node: node \"*\"", exitUsage, []string{"remove", "*"}},
	} {
		got := s.command(t, tc.code, append([]string{"worker"}, tc.args...)...)
		if !strings.Contains(got, tc.want) || strings.Count(strings.TrimSpace(got), "\n") != 0 {
			t.Errorf("%v printed %q, want %q in one line", tc.args, got, tc.want)
		}
	}
}

// TestANATSOfItsOwnTakesTheSameCredentials checks that a separate NATS server, configured by 'outbid nats init', admits
// servers and workers with those keys.
func TestANATSOfItsOwnTakesTheSameCredentials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keys, include := filepath.Join(dir, "keys"), filepath.Join(dir, "auth.conf")
	init := newTestApp(nil, nil)
	wantExit(t, init, init.start(t.Context(), "nats", "init", "--keys", keys, "--include", include), exitOK)
	conf := filepath.Join(dir, "nats.conf")
	text := "listen: 127.0.0.1:-1\njetstream { store_dir: '" + dir + "/store', sync_interval: always }\ninclude 'auth.conf'\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := natsserver.ProcessConfigFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	opts.NoSigs, opts.NoLog = true, true
	ns, err := natsserver.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	if !ns.ReadyForConnections(20 * time.Second) {
		t.Fatal("NATS does not start")
	}
	s := startServer(t, "serve", "--data", filepath.Join(dir, "data"), "--api", "127.0.0.1:0", "--nats", ns.ClientURL(), "--keys", keys)
	w := newTestApp(nil, map[string]string{"HOME": t.TempDir()})
	w.now = time.Now
	done := w.start(t.Context(), "worker", "--credentials", s.joined(t, "far"), "--devices", "cpu:1", "--dir", filepath.Join(dir, "w"))
	if got := s.command(t, exitOK, "run", "-"); !strings.Contains(got, "real-1 done") {
		t.Errorf("run printed:\n%s", got)
	}
	w.signals <- os.Interrupt
	wantExit(t, w, done, exitOK)
	other := newTestApp(nil, nil)
	other.now = time.Now
	wantExit(t, other, other.start(t.Context(), "serve", "--data", filepath.Join(dir, "other"), "--api", "127.0.0.1:0", "--nats",
		ns.ClientURL()), exitFailed)
	if !strings.Contains(other.err.String(), "check the credentials") {
		t.Errorf("a server with other keys is told:\n%s", other.err)
	}
}

// TestCredentialsAreRenewed checks that credentials are renewed with the orders after half of their life, and saved.
func TestCredentialsAreRenewed(t *testing.T) {
	t.Parallel()
	keys, err := identity.MakeKeys(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	who, err := keys.Worker("n", now.Add(-identity.WorkerLife*3/4))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := who.Write(dir, nil); err != nil {
		t.Fatal(err)
	}
	fresh, err := keys.IssueWorker("n", who.Public(), now)
	if err != nil {
		t.Fatal(err)
	}
	other, err := keys.IssueWorker("m", who.Public(), now)
	if err != nil {
		t.Fatal(err)
	}
	if err := who.Renew(other); err == nil {
		t.Error("took another worker's credentials")
	}
	before := who.Expires()
	if err := who.Renew(fresh); err != nil || !who.Expires().After(before) {
		t.Errorf("renewed until %v: %v", who.Expires(), err)
	}
	kept, err := identity.ReadCredentials(dir)
	if err != nil || !kept.Expires().Equal(who.Expires()) || kept.Public() != who.Public() {
		t.Errorf("kept %v: %v", kept.Expires(), err)
	}
}

// TestTheServerRenewsCredentialsThatRunOut checks that the server sends new credentials after an uplink reports that
// the old ones expire soon, until an uplink reports that they do not.
func TestTheServerRenewsCredentialsThatRunOut(t *testing.T) {
	t.Parallel()
	s := startServer(t, "serve", "--data", t.TempDir(), "--api", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0")
	dir := s.joined(t, "far")
	keys, err := identity.OpenKeys(s.file.Keys)
	if err != nil {
		t.Fatal(err)
	}
	who, err := identity.ReadCredentials(dir)
	if err != nil {
		t.Fatal(err)
	}
	// The same key, with credentials that expire in a week.
	old, err := keys.IssueWorker("far", who.Public(), time.Now().Add(7*24*time.Hour-identity.WorkerLife))
	if err != nil {
		t.Fatal(err)
	}
	brief, err := identity.NewCredentials(who.Key(), old)
	if err != nil {
		t.Fatal(err)
	}
	brief.OrdersKey, brief.NATS = who.OrdersKey, who.NATS
	if err := brief.Write(dir, nil); err != nil {
		t.Fatal(err)
	}
	w := newTestApp(nil, map[string]string{"HOME": t.TempDir()})
	w.now = time.Now
	done := w.start(t.Context(), "worker", "--credentials", dir, "--devices", "cpu:1", "--dir", filepath.Join(t.TempDir(), "w"))
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if now, err := identity.ReadCredentials(dir); err == nil && now.Expires().After(time.Now().Add(identity.WorkerLife-time.Hour)) {
			break
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("the credentials were not renewed:\n%s", w.err)
		}
	}
	w.signals <- os.Interrupt
	wantExit(t, w, done, exitOK)
}
