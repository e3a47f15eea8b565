package nats

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
)

// load reads nats.conf as the server does, with the file that 'outbid nats init' writes next to it.
func load(t *testing.T) (*server.Options, *identity.Keys) {
	t.Helper()
	text, err := os.ReadFile("nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := identity.MakeKeys(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	auth, err := keys.NATSConfig()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{"nats.conf": text, "auth.conf": auth} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opts, err := server.ProcessConfigFile(filepath.Join(dir, "nats.conf"))
	if err != nil {
		t.Fatalf("nats.conf: %v", err)
	}
	return opts, keys
}

func TestConfigKeepsWhatItAcknowledges(t *testing.T) {
	t.Parallel()
	opts, _ := load(t)
	if !opts.SyncAlways {
		t.Error("sync_interval is not always: an acknowledged append could be lost")
	}
	if !opts.JetStream || opts.StoreDir == "" {
		t.Error("JetStream has no store on disk")
	}
	if opts.MaxPayload != bus.MaxPayload {
		t.Errorf("max_payload is %d, the embedded server's is %d", opts.MaxPayload, bus.MaxPayload)
	}
	if opts.AuthTimeout != 10 {
		t.Errorf("a client has %g s to authenticate, want 10: thousands of workers may connect at once", opts.AuthTimeout)
	}
}

func TestConfigLetsNobodyInUnasked(t *testing.T) {
	t.Parallel()
	opts, _ := load(t)
	if len(opts.TrustedOperators) != 1 || opts.AccountResolver == nil {
		t.Error("clients need no credentials")
	}
	for what, host := range map[string]string{"listen": opts.Host, "http": opts.HTTPHost} {
		if host != "127.0.0.1" {
			t.Errorf("%s is on %q, not on loopback", what, host)
		}
	}
}

func TestConfigStartsAndLetsInWhomItsKeysSigned(t *testing.T) {
	t.Parallel()
	opts, keys := load(t)
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
	if _, err := bus.Connect(t.Context(), bus.ConnConfig{URL: s.ClientURL()}); err == nil {
		t.Error("a stranger is let in")
	}
	who, err := keys.Orchestrator()
	if err != nil {
		t.Fatal(err)
	}
	nc, err := bus.Connect(t.Context(), bus.ConnConfig{URL: s.ClientURL(), User: who})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := bus.OpenWorkers(t.Context(), nc, bus.WorkersConfig{}); err != nil {
		t.Errorf("the orchestrator has no JetStream: %v", err)
	}
}
