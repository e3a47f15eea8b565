package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// upWhileClients starts a server that ends with its last client, the first of which is there before it, as the SDK is.
func upWhileClients(t *testing.T) (*upApp, *os.File, string) {
	t.Helper()
	data := t.TempDir()
	if err := os.WriteFile(clientsPath(data), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first := holdServer(data)
	u := startServer(t, "up", "--while-clients", "--data", data, "--api", "127.0.0.1:0", "--workers", "0")
	return u, first, data
}

func TestAServerEndsWithItsLastClient(t *testing.T) {
	t.Parallel()
	u, first, data := upWhileClients(t)
	if !u.file.WhileClients {
		t.Error("the server's file does not say that it ends with its last client")
	}
	second := holdServer(data)
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
	if holdServer(data) == nil {
		t.Error("the file is still held after the server's end")
	}
}

func TestAServerStaysWhenAskedTo(t *testing.T) {
	t.Parallel()
	_, first, data := upWhileClients(t)
	if err := os.WriteFile(clientsPath(data), fmt.Appendf(nil, keepWord, os.Getpid()), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(clientsPath(data), os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	_ = first.Close()
	if awaitClientsGone(t.Context(), file, time.Now(), time.Now) {
		t.Error("it was to stay, and would end")
	}
}

// What a client wrote for a server of before does not count.
func TestKeepIsForOneProcess(t *testing.T) {
	t.Parallel()
	path := clientsPath(t.TempDir())
	got := map[string]bool{}
	for _, text := range []string{"", "keep", fmt.Sprintf(keepWord, os.Getpid()+1), fmt.Sprintf(keepWord, os.Getpid())} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		got[text] = keepAsked(file)
		_ = file.Close()
	}
	want := map[string]bool{
		"": false, "keep": false, fmt.Sprintf(keepWord, os.Getpid()+1): false, fmt.Sprintf(keepWord, os.Getpid()): true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTheFirstClientIsWaitedForSoLong(t *testing.T) {
	t.Parallel()
	path := clientsPath(t.TempDir())
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	soon := func() time.Time { return time.Unix(0, 0) }
	if awaitClientsGone(ctx, file, time.Unix(60, 0), soon) {
		t.Error("it ended before its first client could come")
	}
	if !awaitClientsGone(ctx, file, time.Unix(-1, 0), soon) {
		t.Error("no client came in time, and it stays")
	}
}
