package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
)

// file combines a header's JSON and data bytes.
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

func read(b []byte) (*safetensors.Header, error) {
	return safetensors.ReadHeader(bytes.NewReader(b), int64(len(b)))
}

func TestAHeaderIsReadAndWritten(t *testing.T) {
	t.Parallel()
	h, err := read(file(`{"b":{"dtype":"F32","shape":[2,3],"data_offsets":[2,26]},"__metadata__":{"k":"v"},`+
		`"a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},"none":{"dtype":"I8","shape":[0],"data_offsets":[26,26]}}  `, 26))
	if err != nil {
		t.Fatal(err)
	}
	want := []safetensors.Tensor{
		{Name: "a", DType: safetensors.BF16, Shape: []int64{}, Begin: 0, End: 2},
		{Name: "b", DType: safetensors.F32, Shape: []int64{2, 3}, Begin: 2, End: 26},
		{Name: "none", DType: safetensors.I8, Shape: []int64{0}, Begin: 26, End: 26},
	}
	if diff := cmp.Diff(want, h.Tensors); diff != "" || h.Metadata["k"] != "v" || h.DataBytes() != 26 {
		t.Errorf("read %+v:\n%s", h, diff)
	}
	head, err := h.Encode()
	if err != nil || len(head)%8 != 0 {
		t.Fatalf("encoded %d bytes (%v)", len(head), err)
	}
	again, err := read(append(head, make([]byte, 26)...))
	if err != nil || cmp.Diff(h, again) != "" {
		t.Errorf("it comes back as %+v (%v)", again, err)
	}
}

func TestABadFileIsRefused(t *testing.T) {
	t.Parallel()
	huge := binary.LittleEndian.AppendUint64(nil, 1<<63)
	for name, c := range map[string]struct {
		content []byte
		says    string
	}{
		"empty":            {nil, "it has 0 bytes"},
		"huge header":      {huge, "at most 100000000 are allowed"},
		"header too long":  {file("{}", 0)[:9], "a header of 2 bytes in a file of 9"},
		"no object":        {file("[]", 0), "not a JSON object"},
		"cut JSON":         {file(`{"a":`, 0), `tensor "a"`},
		"twice":            {file(`{"a":{"dtype":"I8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"I8","shape":[0],"data_offsets":[0,0]}}`, 0), `"a" twice`},
		"unknown type":     {file(`{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}`, 1), `type "F4" is not known`},
		"gap":              {file(`{"a":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}}`, 2), "ends at 0"},
		"overlap":          {file(`{"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"I8","shape":[2],"data_offsets":[1,3]}}`, 3), "ends at 2"},
		"backwards":        {file(`{"a":{"dtype":"I8","shape":[2],"data_offsets":[0,-2]}}`, 0), "[0, -2]"},
		"wrong bytes":      {file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4), "it has 4 bytes; its shape needs 8"},
		"no memory":        {file(`{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}`, 0), "exceeds any memory"},
		"negative shape":   {file(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}}`, 0), "exceeds any memory"},
		"three offsets":    {file(`{"a":{"dtype":"I8","shape":[0],"data_offsets":[0,0,0]}}`, 0), "has 3 numbers"},
		"no shape":         {file(`{"a":{"dtype":"I8","data_offsets":[0,1]}}`, 1), "has no shape"},
		"something after":  {file(`{} {}`, 0), "trailing data"},
		"data cut off":     {file(`{"a":{"dtype":"I8","shape":[9],"data_offsets":[0,9]}}`, 8), "but the file has"},
		"data too long":    {file(`{}`, 1), "but the file has 11"},
		"null offset":      {file(`{"a":{"dtype":"I8","shape":[1],"data_offsets":[null,1]}}`, 1), "null is not a number"},
		"null shape":       {file(`{"a":{"dtype":"I8","shape":null,"data_offsets":[0,1]}}`, 1), "has no shape"},
		"null metadata":    {file(`{"__metadata__":{"a":null}}`, 0), `"a" is null`},
		"other case":       {file(`{"a":{"DType":"I8","shape":[1],"data_offsets":[0,1]}}`, 1), "is not known"},
		"field twice":      {file(`{"a":{"dtype":"I8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), "dtype: it occurs twice"},
		"no UTF-8":         {file("{\"\xff\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1), "not UTF-8"},
		"zeros after":      {file("{}\x00\x00", 0), "trailing data"},
		"null":             {file(`{"a":null}`, 0), "not a JSON object"},
		"metadata numbers": {file(`{"__metadata__":{"a":1}}`, 0), "not an object of strings"},
	} {
		h, err := read(c.content)
		if err == nil || !errors.Is(err, safetensors.ErrFormat) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v; want %q", name, h, err, c.says)
		}
	}
}

// FuzzReadHeader checks that every header that is read without an error is complete, and the same after it is encoded
// again.
func FuzzReadHeader(f *testing.F) {
	f.Add(file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"k":"v"}}`, 8))
	f.Add(file(`{"a":{"dtype":"F32","shape":[0,9],"data_offsets":[0,0]}}`, 0))
	f.Add(file(`{}`, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := read(b)
		if err != nil {
			return
		}
		if h.Bytes+h.DataBytes() != int64(len(b)) {
			t.Fatalf("%d bytes were taken for %+v", len(b), h)
		}
		names := make(map[string]bool)
		for _, x := range h.Tensors {
			if x.End < x.Begin || names[x.Name] {
				t.Fatalf("tensors %+v", h.Tensors)
			}
			names[x.Name] = true
		}
		head, err := h.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := read(append(head, b[len(b)-int(h.DataBytes()):]...))
		if err != nil || !cmp.Equal(h.Tensors, again.Tensors) || len(h.Metadata) != len(again.Metadata) {
			t.Fatalf("%+v comes back as %+v (%v)", h, again, err)
		}
	})
}
