package objects_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/objects/objectstest"
)

// BenchmarkPutFileThroughMinio stores a file of 256 MiB in parts, with its sums, as a worker stores a checkpoint.
func BenchmarkPutFileThroughMinio(b *testing.B) {
	m := objectstest.StartMinio(b)
	b.Setenv("AWS_ACCESS_KEY_ID", m.User)
	b.Setenv("AWS_SECRET_ACCESS_KEY", m.Password)
	store, err := objects.Open(b.Context(), objectstest.URLs(m.Endpoint)())
	if err != nil {
		b.Fatal(err)
	}
	access := &objects.Presigned{
		Sign: func(ctx context.Context, key string, _ bool, size int64) (objects.Signed, error) {
			return store.(objects.Signer).SignPut(ctx, key, size)
		},
		Client: &http.Client{}, Name: store.String,
	}
	const size = 256 << 20
	b.SetBytes(size)
	busy := time.Duration(0)
	path := filepath.Join(b.TempDir(), "shard")
	for b.Loop() {
		b.StopTimer()
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			b.Fatal(err)
		}
		before := ownTime(b)
		b.StartTimer()
		if _, _, err := objects.PutFile(b.Context(), access, "checkpoints/s-1/0/000000000001-1.shards.0", path); err != nil {
			b.Fatal(err)
		}
		busy += ownTime(b) - before
	}
	b.ReportMetric(busy.Seconds()/float64(b.N), "worker-s/op")
}

// ownTime returns the processor time of this process.
func ownTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
