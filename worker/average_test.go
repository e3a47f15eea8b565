package worker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// weights returns a checkpoint of one tensor of two numbers.
func weights(t *testing.T, name string, values ...float32) []byte {
	t.Helper()
	data := make([]byte, 4*len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(v))
	}
	h := safetensors.Header{Tensors: []safetensors.Tensor{{Name: name, DType: safetensors.F32, Shape: []int64{int64(len(values))}, End: int64(len(data))}}}
	header, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return append(header, data...)
}

// put stores a fork's checkpoint, and returns it as a source of a number of steps.
func (r *rig) put(t *testing.T, key string, steps int64, data []byte) *outbidv1.ConsolidationSource {
	t.Helper()
	if err := r.store.Put(t.Context(), key, bytes.NewReader(data), int64(len(data))); err != nil {
		t.Fatal(err)
	}
	return &outbidv1.ConsolidationSource{Checkpoint: &outbidv1.Checkpoint{Key: key, Step: 100 + steps, Bytes: int64(len(data))}, Steps: steps}
}

func (r *rig) average(sources ...*outbidv1.ConsolidationSource) { r.averageFrom(nil, sources...) }

// averageFrom orders an average of sources, with an outer step if outer is not nil.
func (r *rig) averageFrom(outer *outbidv1.OuterStep, sources ...*outbidv1.ConsolidationSource) {
	r.bus.orch.with(func() {
		r.bus.orch.averages = []*outbidv1.Consolidation{{
			Fork: &outbidv1.ForkRef{Sweep: "s-1", LeaseId: 7}, Attempt: 1, Step: 180, Key: "checkpoints/s-1/0/000000000180-7.safetensors",
			Sources: sources, Outer: outer,
		}}
	})
}

// Checkpoints of forks are averaged by each fork's steps, and the average is stored under the requested key.
func TestAWorkerAverages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.average(r.put(t, "checkpoints/s-1/0/000000000160-7.safetensors", 60, weights(t, "w", 1, 10)),
		r.put(t, "checkpoints/s-1/0/000000000120-8.safetensors", 20, weights(t, "w", 5, 2)))
	r.bus.orch.awaitText(t, 7, "averaged 180 checkpoints/s-1/0/000000000180-7.safetensors false: \n")
	got, err := r.store.Get(t.Context(), "checkpoints/s-1/0/000000000180-7.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(got)
	if want := weights(t, "w", 2, 8); err != nil || !bytes.HasSuffix(data, want[len(want)-8:]) {
		t.Errorf("it averaged to %v (%v)", data[len(data)-8:], err)
	}
}

// An outer optimizer starts from the checkpoint where the fork slot began, and stores its velocity next to the
// weights for the next step.
func TestAWorkerMakesAnOuterStep(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	start := r.put(t, "checkpoints/s-1/0/000000000100-7.safetensors", 0, weights(t, "w", 1, 10)).GetCheckpoint()
	left := weights(t, "w", 0.5, -1)
	if err := r.store.Put(t.Context(), start.GetKey()+".outer", bytes.NewReader(left), int64(len(left))); err != nil {
		t.Fatal(err)
	}
	start.Outer = &outbidv1.OuterState{Bytes: int64(len(left))}
	sources := []*outbidv1.ConsolidationSource{
		r.put(t, "checkpoints/s-1/0/000000000160-7.safetensors", 60, weights(t, "w", 3, 6)),
		r.put(t, "checkpoints/s-1/0/000000000120-8.safetensors", 20, weights(t, "w", 5, 4)),
	}
	const key = "checkpoints/s-1/0/000000000180-7.safetensors"
	ck, err := averageOnce(t.Context(), r.store, &outbidv1.Consolidation{
		Step: 180, Key: key, Sources: sources, Uniform: true, Outer: &outbidv1.OuterStep{Start: start, Rate: 0.5, Momentum: 0.5},
	})
	if err != nil {
		t.Fatal(err)
	}
	// The means are 4 and 5, so the gradients are -3 and 5, the velocities -2.75 and 4.5, and the steps -4.375 and
	// 7.25.
	for name, want := range map[string][]byte{key: weights(t, "w", 3.1875, 6.375), key + ".outer": weights(t, "w", -2.75, 4.5)} {
		got, err := r.store.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(got)
		if err := errors.Join(err, got.Close()); err != nil || !bytes.HasSuffix(data, want[len(want)-8:]) {
			t.Errorf("%s holds %v (%v); want %v", name, data[len(data)-8:], err, want[len(want)-8:])
		}
	}
	mustBe(t, r.store, ck)
	mustBe(t, r.store, &outbidv1.Checkpoint{Key: key + ".outer", Bytes: ck.GetOuter().GetBytes(), Sha256: ck.GetOuter().GetSha256(), Crc64Nvme: ck.GetOuter().GetCrc64Nvme()})
}

// A failed average is reported in one line, with whether another node could succeed. A worker waits for an
// unavailable store.
func TestAveragesThatFail(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		second []byte
		want   string
	}{
		"other tensors":      {weights(t, "v", 1, 2), "averaged 0  true: the checkpoints of its forks could not be averaged: the checkpoints differ in their tensors"},
		"no safetensors":     {[]byte("what a program wrote"), "averaged 0  true: "},
		"a fork that is NaN": {weights(t, "w", 1, float32(math.NaN())), "averaged 0  true: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := r.put(t, "checkpoints/s-1/0/000000000160-7.safetensors", 60, weights(t, "w", 1, 10))
			r.average(a, r.put(t, "checkpoints/s-1/0/000000000120-8.safetensors", 20, tc.second))
			r.bus.orch.awaitText(t, 7, tc.want)
		})
	}
	t.Run("damaged", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		a := r.put(t, "checkpoints/s-1/0/000000000160-7.safetensors", 60, weights(t, "w", 1, 10))
		a.Checkpoint.Sha256 = strings.Repeat("0", 64)
		r.average(a)
		r.bus.orch.awaitText(t, 7, "averaged 0  false: the checkpoints of its forks could not be averaged: the checkpoint is damaged: the SHA-256 of checkpoints/s-1/0/000000000160-7.safetensors is ")
	})
	t.Run("damaged so that it is not a safetensors file", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		a := r.put(t, "checkpoints/s-1/0/000000000160-7.safetensors", 60, weights(t, "w", 1, 10))
		b := r.put(t, "checkpoints/s-1/0/000000000120-8.safetensors", 20, []byte("no such file was stored"))
		b.Checkpoint.Sha256 = strings.Repeat("0", 64)
		r.average(a, b)
		r.bus.orch.awaitText(t, 7, "averaged 0  false: the checkpoints of its forks could not be averaged: the checkpoint is damaged: the SHA-256 of checkpoints/s-1/0/000000000120-8")
	})
	t.Run("where it began is damaged, for an outer step", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		start := r.put(t, "checkpoints/s-1/0/000000000100-6.safetensors", 0, []byte("no such file was stored")).Checkpoint
		start.Sha256 = strings.Repeat("0", 64)
		a := r.put(t, "checkpoints/s-1/0/000000000160-7.safetensors", 60, weights(t, "w", 1, 10))
		b := r.put(t, "checkpoints/s-1/0/000000000120-8.safetensors", 20, weights(t, "w", 5, 2))
		r.averageFrom(&outbidv1.OuterStep{Start: start, Rate: 0.5, Momentum: 0.5}, a, b)
		r.bus.orch.awaitText(t, 7, "averaged 0  false: the checkpoints of its forks could not be averaged: the checkpoint is damaged: the SHA-256 of checkpoints/s-1/0/000000000100-6")
	})
	t.Run("cut off", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		a := r.put(t, "checkpoints/s-1/0/000000000160-7.safetensors", 60, weights(t, "w", 1, 10))
		a.Checkpoint.Bytes += 8
		r.average(a)
		r.bus.orch.awaitText(t, 7, "averaged 0  true: the checkpoints of its forks could not be averaged: checkpoints/s-1/0/000000000160-7.safetensors: not a complete safetensors file: ")
	})
	t.Run("the store is away", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		a := r.put(t, "checkpoints/s-1/0/000000000160-7.safetensors", 60, weights(t, "w", 1, 10))
		r.store.fail(objects.ErrUnavailable)
		r.average(a)
		r.bus.orch.await(t, "orders arrived", func() bool { return r.bus.orch.uplinks > 2 })
		if said := r.bus.orch.heard(7); said != "" {
			t.Errorf("it said %s", said)
		}
		r.store.fail(nil)
		r.bus.orch.awaitText(t, 7, "averaged 180")
	})
}
