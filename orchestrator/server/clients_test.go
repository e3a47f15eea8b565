package server

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAServerStaysWhenAskedTo(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	if err := os.WriteFile(ClientsPath(data), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first := Hold(data)
	if err := os.WriteFile(ClientsPath(data), fmt.Appendf(nil, keepWord, os.Getpid()), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(ClientsPath(data), os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	_ = first.Close()
	if awaitClientsGone(t.Context(), file, time.Now(), time.Now) {
		t.Error("it was to stay, and would end")
	}
}

// TestKeepIsForOneProcess checks that a client's request to stay applies to only one server process.
func TestKeepIsForOneProcess(t *testing.T) {
	t.Parallel()
	path := ClientsPath(t.TempDir())
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
	path := ClientsPath(t.TempDir())
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
