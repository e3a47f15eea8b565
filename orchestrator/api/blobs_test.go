package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// send uploads a function of size equal bytes and returns its SHA-256.
func send(ctx context.Context, c outbidv1.OutbidServiceClient, letter byte, size int) (string, error) {
	stream, err := c.PutBlob(ctx)
	if err != nil {
		return "", err
	}
	data := bytes.Repeat([]byte{letter}, size)
	for len(data) > 0 {
		n := min(len(data), 64<<10)
		if err := stream.Send(&outbidv1.PutBlobRequest{Data: data[:n]}); errors.Is(err, io.EOF) {
			break // CloseAndRecv returns the error
		} else if err != nil {
			return "", err
		}
		data = data[n:]
	}
	resp, err := stream.CloseAndRecv()
	return resp.GetSha256(), err
}

func shaOf(letter byte, size int) string {
	sum := sha256.Sum256(bytes.Repeat([]byte{letter}, size))
	return hex.EncodeToString(sum[:])
}

func functionSpec(sha string) *outbidv1.SweepSpec {
	own := okSpec()
	own.Workload = &outbidv1.SweepSpec_Function{Function: &outbidv1.Function{Blob: sha}}
	return own
}

func TestFunctionsOfATenantHaveAQuota(t *testing.T) {
	t.Parallel()
	limits, _, err := loadLimits(t, "default: {blob_bytes: 1MiB}")
	if err != nil {
		t.Fatal(err)
	}
	store, err := objects.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := serve(t, func(c *Config) { c.Tokens, c.Limits, c.Store = testTokens(t), limits, store })
	ann, bob, root := h.dial(t, token("ann")), h.dial(t, token("bob")), h.dial(t, token("root"))
	const size = 600 << 10
	a, err := send(t.Context(), ann, 'a', size)
	if err != nil || a != shaOf('a', size) {
		t.Fatalf("%s, %v", a, err)
	}
	if _, err := send(t.Context(), ann, 'b', size); status.Code(err) != codes.ResourceExhausted ||
		!strings.Contains(err.Error(), "614400 of at most 1048576 bytes") || !strings.Contains(err.Error(), "vision") {
		t.Errorf("a second one: %v", err)
	}
	if _, err := store.Stat(t.Context(), objects.BlobKey(shaOf('b', size))); !errors.Is(err, objects.ErrNotFound) {
		t.Errorf("it was stored: %v", err)
	}
	for name, c := range map[string]outbidv1.OutbidServiceClient{"another tenant": bob, "an admin": root} {
		if _, err := send(t.Context(), c, name[0]+8, size); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ann.SubmitSweep(t.Context(), &outbidv1.SubmitSweepRequest{Spec: functionSpec(a)}); err != nil {
		t.Fatal(err)
	}
	h.blobs.now = func() time.Time { return time.Now().Add(2 * blobAge) }
	if _, err := send(t.Context(), ann, 'b', size); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a sweep uses the first: %v", err)
	}
	h.control.mu.Lock()
	clear(h.control.sweeps)
	h.control.mu.Unlock()
	if _, err := send(t.Context(), ann, 'b', size); err != nil {
		t.Errorf("nothing uses the first any more: %v", err)
	}
}

func TestFunctionsThatNothingNeedsAreDeleted(t *testing.T) {
	t.Parallel()
	store, err := objects.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := serve(t, func(c *Config) { c.Store = store })
	c := h.dial(t, "")
	for _, letter := range []byte("uns") { // used, not used, uploaded recently
		if _, err := send(t.Context(), c, letter, 100); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.SubmitSweep(t.Context(), &outbidv1.SubmitSweepRequest{Spec: functionSpec(shaOf('u', 100))}); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	h.blobs.now = func() time.Time { return now.Add(2 * blobAge) }
	if _, err := send(t.Context(), c, 's', 100); err != nil { // uploading it again does not change the object's age
		t.Fatal(err)
	}
	if n, err := h.TidyBlobs(t.Context(), now.Add(-blobAge)); n != 0 || err != nil {
		t.Errorf("all are young: %d, %v", n, err)
	}
	if n, err := h.TidyBlobs(t.Context(), now.Add(blobAge)); n != 1 || err != nil {
		t.Errorf("%d were deleted, %v; want 1", n, err)
	}
	for letter, want := range map[byte]bool{'u': true, 'n': false, 's': true} {
		if _, err := store.Stat(t.Context(), objects.BlobKey(shaOf(letter, 100))); errors.Is(err, objects.ErrNotFound) == want {
			t.Errorf("%c: %v; there: %v", letter, err, want)
		}
	}
}
