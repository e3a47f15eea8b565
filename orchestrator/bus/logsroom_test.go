package bus

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// TestLogsTakeTheRoomThereIs covers small disks: JetStream takes three quarters of the free space.
func TestLogsTakeTheRoomThereIs(t *testing.T) {
	t.Parallel()
	for room, want := range map[int64]string{100 << 20: "", 512 << 10: "free space"} {
		s, err := server.NewServer(&server.Options{
			Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, JetStreamMaxStore: room, StoreDir: t.TempDir(),
			NoSigs: true, NoLog: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		go s.Start()
		t.Cleanup(func() {
			s.Shutdown()
			s.WaitForShutdown()
		})
		if !s.ReadyForConnections(10 * time.Second) {
			t.Fatal("NATS does not start")
		}
		nc, err := Connect(t.Context(), ConnConfig{URL: s.ClientURL(), Name: "test"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		logs, err := OpenLogs(t.Context(), nc, LogsConfig{})
		if err != nil {
			t.Fatal(err)
		}
		err = logs.Reserve(t.Context(), "vision", 1<<30)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%d bytes: %v", room, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%d bytes: %v", room, err)
		}
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := js.Stream(t.Context(), LogStream("vision"))
		if err != nil {
			t.Fatal(err)
		}
		if got := stream.CachedInfo().Config.MaxBytes; got > room/2 || got < room/8 {
			t.Errorf("of %d bytes it takes %d", room, got)
		}
		if err := logs.Close(); err != nil {
			t.Error(err)
		}
	}
}
