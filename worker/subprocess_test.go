package worker

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/objects/objectstest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A worker that reaches its store by itself has averages made by a process of its own, which says what is wrong as it would
// itself, and ends when nobody wants the average any more.
func TestAveragesAreMadeByASubprocess(t *testing.T) {
	t.Parallel()
	store := openStore(t, t.TempDir())
	data := weights(t, "w", 1, 10)
	const key = "checkpoints/s-1/0/000000000160-7.safetensors"
	if err := store.Put(t.Context(), key, bytes.NewReader(data), int64(len(data))); err != nil {
		t.Fatal(err)
	}
	ck := &outbidv1.Checkpoint{Key: key, Bytes: int64(len(data))}
	order := &outbidv1.Consolidation{Step: 900, Key: averageKey, Sources: []*outbidv1.ConsolidationSource{{Checkpoint: ck, Steps: 1}}}
	made, err := Consolidate(t.Context(), store, order)
	if err != nil {
		t.Fatal(err)
	}
	mustBe(t, store, made)
	ck.Sha256 = strings.Repeat("0", 64)
	_, err = Consolidate(t.Context(), store, order)
	var failure *averageFailure
	if !errors.As(err, &failure) || !errors.Is(err, checkpoint.ErrDamaged) || errors.Is(err, objects.ErrUnavailable) {
		t.Errorf("of a damaged checkpoint: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Consolidate(ended, store, order); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context: %v", err)
	}
}

// A bucket is reached with the same credentials from there.
func TestABucketIsAveragedByASubprocess(t *testing.T) {
	m := startMinio(t)
	store := openStore(t, objectstest.URLs(m.Endpoint)())
	ck := putBig(t, store, "checkpoints/s-1/0/000000000100-7.safetensors", 1)
	made, err := Consolidate(t.Context(), store, &outbidv1.Consolidation{
		Step: 900, Key: averageKey, Sources: []*outbidv1.ConsolidationSource{{Checkpoint: ck, Steps: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	mustBe(t, store, made)
}
