package bus

import (
	"errors"
	"log/slog"
	"net"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// TestAPortThatIsTakenMeanwhile checks the error for a port that is taken between the check and the start.
func TestAPortThatIsTakenMeanwhile(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	opts := options(ServerConfig{Dir: t.TempDir(), Port: taken.Addr().(*net.TCPAddr).Port}) //nolint:forcetypeassert // it is TCP
	ns, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	log := newServerLog(slog.New(slog.DiscardHandler))
	ns.SetLoggerV2(log, false, false, false)
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if log.ready(ns) || !errors.Is(log.cause(), syscall.EADDRINUSE) {
		t.Errorf("it says %v", log.cause())
	}
}
