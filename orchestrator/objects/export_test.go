package objects

import (
	"net/url"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// NewS3ForTest returns a store at an endpoint, without a check of its bucket and with few retries.
func NewS3ForTest(t *testing.T, endpoint string) *S3 {
	t.Helper()
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	client, err := minio.New(u.Host, &minio.Options{
		Creds: credentials.NewStaticV4("user", "password", ""), Region: "us-east-1", MaxRetries: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &S3{core: minio.Core{Client: client}, bucket: "bucket", name: "s3://bucket"}
}

// SetLifeForTest sets the life of a store's signatures.
func SetLifeForTest(s Store, life time.Duration) {
	s.(*S3).life = life //nolint:forcetypeassert // tests must pass an S3 store
}

// SetClockForTest sets a handler's clock.
func (h *Handler) SetClockForTest(now func() time.Time) { h.now = now }

// FreeSlowlyForTest makes a store free all files in small steps, regardless of its disk.
func (d *Dir) FreeSlowlyForTest() { d.freedAtOnce = 0 }
