package objects_test

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/objects/objectstest"
)

// begun starts to store an object in parts, stores one of them, and stops.
func begun(t *testing.T, store objects.Store, key string) {
	t.Helper()
	signer, ok := store.(objects.Signer)
	if !ok {
		t.Fatalf("%T signs nothing", store)
	}
	signed, err := signer.SignPut(t.Context(), key, 40<<20)
	if err != nil {
		t.Fatal(err)
	}
	part := string(bytes.Repeat([]byte("x"), int(signed.PartBytes)))
	if got := status(t, http.MethodPut, signed.Parts[0], part); got != http.StatusOK {
		t.Fatalf("a part: status %d", got)
	}
}

// TestUploadsThatNeverEndedAreGivenUp checks that the remains of unfinished uploads are removed if they are old, and no
// others.
func TestUploadsThatNeverEndedAreGivenUp(t *testing.T) {
	t.Parallel()
	store := open(t, objectstest.URLs(objectstest.StartVersity(t).Endpoint)())
	put(t, store, "kept", "text")
	begun(t, store, "checkpoints/a-1/0/000000000003-1.safetensors")
	begun(t, store, "checkpoints/a-1/1/000000000003-2.safetensors")
	tidier, ok := store.(objects.Tidier)
	if !ok {
		t.Fatalf("%T tidies nothing", store)
	}
	if n, err := tidier.Tidy(t.Context(), time.Now().Add(-time.Hour)); err != nil || n != 0 {
		t.Errorf("of uploads that have just begun %d were given up, %v", n, err)
	}
	if n, err := tidier.Tidy(t.Context(), time.Now().Add(time.Minute)); err != nil || n != 2 {
		t.Errorf("%d were given up, %v; want 2", n, err)
	}
	if n, err := tidier.Tidy(t.Context(), time.Now().Add(time.Minute)); err != nil || n != 0 {
		t.Errorf("then %d more, %v", n, err)
	}
	if _, err := store.Stat(t.Context(), "kept"); err != nil {
		t.Error(err)
	}
}

func put(t *testing.T, s objects.Store, key, text string) {
	t.Helper()
	if err := s.Put(t.Context(), key, strings.NewReader(text), int64(len(text))); err != nil {
		t.Fatal(err)
	}
}

// TestMinioTidiesByItself checks that MinIO, which does not list unfinished uploads, is not an error.
func TestMinioTidiesByItself(t *testing.T) {
	t.Parallel()
	m := objectstest.StartMinio(t)
	store := open(t, objectstest.URLs(m.Endpoint)())
	begun(t, store, "a/b")
	if left := m.Parts(t); len(left) == 0 {
		t.Fatal("the test does not see MinIO's parts")
	}
	tidier, ok := store.(objects.Tidier)
	if !ok {
		t.Fatalf("%T tidies nothing", store)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := tidier.Tidy(ctx, time.Now().Add(time.Minute)); err != nil {
		t.Error(err)
	}
}
