package objectstest

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
)

// MinioEnv is the environment variable with the binary of a MinIO server for tests against another vendor's server.
const MinioEnv = "OUTBID_TEST_MINIO"

// Minio is a MinIO server for a test, on the loopback interface.
type Minio struct{ process }

// StartMinio starts a server that ends with the test, or skips the test if OUTBID_TEST_MINIO is not set.
func StartMinio(t testing.TB) *Minio {
	t.Helper()
	m := &Minio{newProcess(t, MinioEnv, "http", "/minio/health/ready")}
	m.args = []string{"server", "--quiet", "--address", m.addr, "--console-address", "127.0.0.1:0", m.dir}
	m.env = []string{
		"MINIO_ROOT_USER=" + m.User, "MINIO_ROOT_PASSWORD=" + m.Password,
		"MINIO_UPDATE=off", "MINIO_BROWSER=off", "MINIO_CALLHOME_ENABLE=off",
	}
	m.Start(t)
	t.Cleanup(func() { m.Stop(t) })
	return m
}

// Parts returns the files of uploads in parts that were neither completed nor aborted.
func (m *Minio) Parts(t testing.TB) []string {
	t.Helper()
	parts, err := filepath.Glob(filepath.Join(m.dir, ".minio.sys/multipart/*/*/*/part.*"))
	if err != nil {
		t.Fatal(err)
	}
	return parts
}

// bucketNames numbers buckets, so that tests share a server but not objects.
type bucketNames struct {
	mu sync.Mutex
	n  int
}

func (b *bucketNames) next() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n++
	return fmt.Sprintf("bucket-%d", b.n)
}

// URLs returns a function that returns the URL of a new bucket, with a prefix, at every call.
func URLs(endpoint string) func() string {
	names := new(bucketNames)
	return func() string {
		return "s3://" + names.next() + "/some/prefix?endpoint=" + endpoint + "&region=us-east-1"
	}
}
