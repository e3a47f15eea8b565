package objects

import (
	"net/url"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// NewS3ForTest returns a store at an endpoint that need not know its bucket, with few retries.
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

// SetLifeForTest makes the signatures of a store hold for so long.
func SetLifeForTest(s Store, life time.Duration) {
	s.(*S3).life = life //nolint:forcetypeassert // a test that gives another store is wrong
}

// SetClockForTest gives a handler another clock.
func (h *Handler) SetClockForTest(now func() time.Time) { h.now = now }

// FreeSlowlyForTest has a store give all files back bit by bit, whatever its disk is.
func (d *Dir) FreeSlowlyForTest() { d.freedAtOnce = 0 }
