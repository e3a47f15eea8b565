package nats

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/outbid-dev/outbid/orchestrator/bus"
)

// load reads nats.conf as the server does, with a token file beside it.
func load(t *testing.T) *server.Options {
	t.Helper()
	text, err := os.ReadFile("nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{
		"nats.conf":  text,
		"token.conf": []byte("token: \"0123456789abcdef0123456789abcdef\"\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opts, err := server.ProcessConfigFile(filepath.Join(dir, "nats.conf"))
	if err != nil {
		t.Fatalf("nats.conf: %v", err)
	}
	return opts
}

func TestConfigKeepsWhatItAcknowledges(t *testing.T) {
	t.Parallel()
	opts := load(t)
	if !opts.SyncAlways {
		t.Error("sync_interval is not always: an acknowledged append could be lost")
	}
	if !opts.JetStream || opts.StoreDir == "" {
		t.Error("JetStream has no store on disk")
	}
	if opts.MaxPayload != bus.MaxPayload {
		t.Errorf("max_payload is %d, the embedded server's is %d", opts.MaxPayload, bus.MaxPayload)
	}
}

func TestConfigLetsNobodyInUnasked(t *testing.T) {
	t.Parallel()
	opts := load(t)
	if opts.Authorization == "" {
		t.Error("clients need no token")
	}
	for what, host := range map[string]string{"listen": opts.Host, "http": opts.HTTPHost} {
		if host != "127.0.0.1" {
			t.Errorf("%s is on %q, not on loopback", what, host)
		}
	}
}

func TestConfigStarts(t *testing.T) {
	t.Parallel()
	opts := load(t)
	opts.Port, opts.HTTPPort, opts.StoreDir, opts.NoSigs, opts.NoLog = -1, -1, t.TempDir(), true, true
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatalf("make a server of it: %v", err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(30e9) || !s.JetStreamEnabled() {
		t.Fatal("the server does not become ready with JetStream")
	}
}
