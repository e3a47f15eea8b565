package cli

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outbid-dev/outbid/orchestrator/server"
)

// upWhileClients starts a server that stops with its last client. The first client exists before the server, like the
// SDK.
func upWhileClients(t *testing.T) (*upApp, *os.File, string) {
	t.Helper()
	data := t.TempDir()
	if err := os.WriteFile(server.ClientsPath(data), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first := server.Hold(data)
	u := startServer(t, "up", "--while-clients", "--data", data, "--api", "127.0.0.1:0", "--workers", "0")
	return u, first, data
}

func TestAServerEndsWithItsLastClient(t *testing.T) {
	t.Parallel()
	u, first, data := upWhileClients(t)
	if !u.file.WhileClients {
		t.Error("the server's file does not say that it ends with its last client")
	}
	second := server.Hold(data)
	_ = first.Close()
	app := newTestApp(nil, nil)
	app.now = time.Now
	if code := app.run(t.Context(), []string{"ls", "--server", u.file.API}); code != exitOK {
		t.Fatalf("the server does not answer though one client is left:\n%s", app.err)
	}
	_ = second.Close()
	wantExit(t, u.testApp, u.done, exitOK)
	u.done = nil
	if got := u.err.String(); !strings.Contains(got, "the last client has gone") {
		t.Errorf("the server did not say why it stopped:\n%s", got)
	}
	// Wait for the lock: a process that another test has just forked may hold it until it executes its program.
	file, err := os.Open(server.ClientsPath(data))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_SH); err != nil {
		t.Error(err)
	}
}
