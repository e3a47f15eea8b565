// Package safetensors reads and writes the header of safetensors files: the names, types, shapes and positions of
// tensors. It never reads the data, so files of any size need only the memory for their header.
//
// A file starts with eight bytes for the length of the header, little-endian. The header, a JSON object, follows, and
// then the data, which the tensors must cover without gaps. The checks are those of the reference implementation, so
// every file that it rejects is rejected here. Files with a duplicate name are also rejected.
package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxHeaderBytes is the reference implementation's limit.
const maxHeaderBytes = 100_000_000

// metadataName is the key of the header's metadata.
const metadataName = "__metadata__"

// ErrFormat means that a file is not a safetensors file, is truncated, or is inconsistent.
var ErrFormat = errors.New("not a complete safetensors file")

// DType is the type of a tensor's elements, by its name in the header.
type DType string

// The known types. F8E4M3 does not have infinities and reaches 448; F8E5M2 is a shortened F16.
const (
	Bool   DType = "BOOL"
	U8     DType = "U8"
	I8     DType = "I8"
	F8E5M2 DType = "F8_E5M2"
	F8E4M3 DType = "F8_E4M3"
	I16    DType = "I16"
	U16    DType = "U16"
	F16    DType = "F16"
	BF16   DType = "BF16"
	I32    DType = "I32"
	U32    DType = "U32"
	F32    DType = "F32"
	I64    DType = "I64"
	U64    DType = "U64"
	F64    DType = "F64"
)

// Size returns the size of an element in bytes, or 0 for an unknown type.
func (d DType) Size() int64 {
	switch d {
	case Bool, U8, I8, F8E5M2, F8E4M3:
		return 1
	case I16, U16, F16, BF16:
		return 2
	case I32, U32, F32:
		return 4
	case I64, U64, F64:
		return 8
	default:
		return 0
	}
}

// IsFloat reports whether elements are floating-point numbers.
func (d DType) IsFloat() bool {
	switch d {
	case F8E5M2, F8E4M3, F16, BF16, F32, F64:
		return true
	default:
		return false
	}
}

// Tensor describes a tensor. Its bytes are [Begin, End) of the data, which starts after the header.
type Tensor struct {
	Name       string
	DType      DType
	Shape      []int64
	Begin, End int64
}

// String returns the tensor's name, type and shape for errors.
func (t Tensor) String() string { return fmt.Sprintf("%q (%s %v)", t.Name, t.DType, t.Shape) }

// Header is the header of a file. Tensors are in the order of their data.
type Header struct {
	Tensors  []Tensor
	Metadata map[string]string
	// Bytes is the length of everything before the data.
	Bytes int64
}

// DataBytes returns the length of the data.
func (h *Header) DataBytes() int64 {
	if len(h.Tensors) == 0 {
		return 0
	}
	return h.Tensors[len(h.Tensors)-1].End
}

// entry is a tensor in the header's JSON.
type entry struct {
	DType   DType   `json:"dtype"`
	Shape   []int64 `json:"shape"`
	Offsets []int64 `json:"data_offsets"`
}

// read reads the fields of a tensor by their exact names, each once, and rejects null. encoding/json alone accepts
// other cases, the last of two, and null for 0.
func (e *entry) read(dec *json.Decoder) error {
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return errors.New("it is not a JSON object")
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		switch {
		case key == "dtype" && e.DType == "":
			err = dec.Decode(&e.DType)
		case key == "shape" && e.Shape == nil:
			e.Shape, err = wholes(dec)
		case key == "data_offsets" && e.Offsets == nil:
			e.Offsets, err = wholes(dec)
		case key == "dtype", key == "shape", key == "data_offsets":
			err = errors.New("it occurs twice")
		default:
			err = dec.Decode(&json.RawMessage{})
		}
		if err != nil {
			return fmt.Errorf("%v: %w", key, err)
		}
	}
	_, err := dec.Token()
	return err
}

// wholes reads a list of whole numbers, or nil for null.
func wholes(dec *json.Decoder) ([]int64, error) {
	var numbers []*int64
	if err := dec.Decode(&numbers); err != nil || numbers == nil {
		return nil, err
	}
	all := make([]int64, len(numbers))
	for i, n := range numbers {
		if n == nil {
			return nil, errors.New("null is not a number")
		}
		all[i] = *n
	}
	return all, nil
}

// ReadHeader reads the header of a file of size bytes. An invalid file is an ErrFormat with the reason.
func ReadHeader(r io.ReaderAt, size int64) (*Header, error) {
	if size < 8 {
		return nil, fmt.Errorf("%w: it has %d bytes, but the header's length alone needs 8", ErrFormat, size)
	}
	var prefix [8]byte
	if err := readAt(r, prefix[:], 0); err != nil {
		return nil, fmt.Errorf("read the header's length: %w", err)
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	if length > maxHeaderBytes {
		return nil, fmt.Errorf("%w: a header of %d bytes; at most %d are allowed", ErrFormat, length, maxHeaderBytes)
	}
	n := int64(length)
	if n > size-8 {
		return nil, fmt.Errorf("%w: a header of %d bytes in a file of %d", ErrFormat, n, size)
	}
	text := make([]byte, n)
	if err := readAt(r, text, 8); err != nil {
		return nil, fmt.Errorf("read the header: %w", err)
	}
	h, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	h.Bytes = 8 + n
	if want := h.Bytes + h.DataBytes(); want != size {
		return nil, fmt.Errorf("%w: its header describes %d bytes, but the file has %d", ErrFormat, want, size)
	}
	return h, nil
}

// readAt fills p, or returns an error if the file ends earlier.
func readAt(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func parse(text []byte) (*Header, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("its header is not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("its header is not a JSON object")
	}
	h := &Header{}
	seen := make(map[string]bool)
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("its header is not JSON: %w", err)
		}
		name, _ := key.(string)
		if seen[name] {
			return nil, fmt.Errorf("its header has %q twice", name)
		}
		seen[name] = true
		if err := h.add(dec, name); err != nil {
			return nil, err
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("its header is not JSON: %w", err)
	}
	if rest := strings.TrimRight(string(text[dec.InputOffset():]), " \t\r\n"); rest != "" {
		return nil, fmt.Errorf("its header has trailing data: %.20q", rest)
	}
	return h, h.check()
}

func (h *Header) add(dec *json.Decoder, name string) error {
	if name == metadataName {
		var texts map[string]*string
		if err := dec.Decode(&texts); err != nil {
			return fmt.Errorf("its metadata is not an object of strings: %w", err)
		}
		h.Metadata = make(map[string]string, len(texts))
		for k, text := range texts {
			if text == nil {
				return fmt.Errorf("its metadata is not an object of strings: %q is null", k)
			}
			h.Metadata[k] = *text
		}
		return nil
	}
	var e entry
	if err := e.read(dec); err != nil {
		return fmt.Errorf("tensor %q: %w", name, err)
	}
	if len(e.Offsets) != 2 {
		return fmt.Errorf("tensor %q: data_offsets has %d numbers; want 2", name, len(e.Offsets))
	}
	if e.Shape == nil {
		return fmt.Errorf("tensor %q: it has no shape", name)
	}
	h.Tensors = append(h.Tensors, Tensor{Name: name, DType: e.DType, Shape: e.Shape, Begin: e.Offsets[0], End: e.Offsets[1]})
	return nil
}

// check sorts the tensors, and checks that they cover the data without gaps and have the sizes of their shapes.
func (h *Header) check() error {
	slices.SortStableFunc(h.Tensors, func(a, b Tensor) int {
		if a.Begin != b.Begin {
			return compare(a.Begin, b.Begin)
		}
		return compare(a.End, b.End)
	})
	at := int64(0)
	for _, t := range h.Tensors {
		if t.Begin != at || t.End < t.Begin {
			return fmt.Errorf("tensor %v: its data_offsets are [%d, %d], but the previous data ends at %d", t, t.Begin, t.End, at)
		}
		size, err := t.bytes()
		if err != nil {
			return err
		}
		if size != t.End-t.Begin {
			return fmt.Errorf("tensor %v: it has %d bytes; its shape needs %d", t, t.End-t.Begin, size)
		}
		at = t.End
	}
	return nil
}

func compare(a, b int64) int {
	if a < b {
		return -1
	}
	return 1
}

// bytes returns the size of the tensor's shape in bytes.
func (t Tensor) bytes() (int64, error) {
	size := t.DType.Size()
	if size == 0 {
		return 0, fmt.Errorf("tensor %q: type %q is not known", t.Name, string(t.DType))
	}
	for _, n := range t.Shape {
		if n < 0 || n > 0 && size > math.MaxInt64/n {
			return 0, fmt.Errorf("tensor %v: the shape exceeds any memory", t)
		}
		size *= n
	}
	return size, nil
}

// Encode returns the bytes before the data of a file with these tensors and metadata, padded so that the data starts at
// a multiple of 8. It sets Bytes.
func (h *Header) Encode() ([]byte, error) {
	var b bytes.Buffer
	b.Write(make([]byte, 8))
	b.WriteByte('{')
	if len(h.Metadata) > 0 {
		if err := member(&b, metadataName, h.Metadata); err != nil {
			return nil, err
		}
	}
	for _, t := range h.Tensors {
		e := entry{DType: t.DType, Shape: append([]int64{}, t.Shape...), Offsets: []int64{t.Begin, t.End}}
		if err := member(&b, t.Name, e); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	if b.Len()-8 > maxHeaderBytes {
		return nil, fmt.Errorf("a header of %d bytes; at most %d are allowed", b.Len()-8, maxHeaderBytes)
	}
	h.Bytes = int64(b.Len())
	binary.LittleEndian.PutUint64(b.Bytes(), uint64(b.Len()-8))
	return b.Bytes(), nil
}

func member(b *bytes.Buffer, name string, value any) error {
	key, err := json.Marshal(name)
	if err != nil {
		return fmt.Errorf("encode the name %q: %w", name, err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %q: %w", name, err)
	}
	if b.Len() > 9 {
		b.WriteByte(',')
	}
	b.Write(key)
	b.WriteByte(':')
	b.Write(text)
	return nil
}
