// Package checkpoint averages checkpoints. Safetensors files with the same tensors, such as those saved by the forks of
// one trial, become one file with their weighted mean (HadarE's consolidation), or with the step that an outer
// optimizer makes of it (DiLoCo). It reads and computes in pieces, so its memory does not depend on the size and number
// of the files.
package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
	"github.com/outbid-dev/outbid/orchestrator/checksum"
)

// blockBytes is how much of a tensor is computed at once. The sums and bytes of a block fit into a core's cache.
const blockBytes = 128 << 10

// Source is one of the checkpoints to average.
type Source struct {
	// Name identifies the source in errors.
	Name string
	// Weight is its relative share of the mean; for forks, the steps that each did. It must be finite and at least 0.
	Weight float64
	// File has its content; it is read concurrently.
	File io.ReaderAt
	// Size is the length of File in bytes.
	Size int64
	// Sums are the known checksums of the content. Stream checks the cheapest one.
	Sums checksum.Sums
}

// ErrMismatch means that checkpoints do not have the same tensors, with the same types and shapes.
var ErrMismatch = errors.New("the checkpoints differ in their tensors")

// ErrNotFinite means that one checkpoint has a NaN or an infinity where another does not, or that the result exceeds
// its type: the training diverged.
var ErrNotFinite = errors.New("a weight is not finite")

// ErrWeight means that a weight is invalid.
var ErrWeight = errors.New("a bad weight")

// Average is the weighted mean of checkpoints, in the form of a safetensors file that is computed when it is read. Its
// tensors have the order of the source with the largest weight, the first one if several are equal.
//
// Floats are added as float64 and rounded once, to the nearest, so the mean of equal numbers is that number. The mean
// of a layer's running variances also includes the spread of the running means. Integers and booleans are copied from
// the source with the largest weight, because their mean is meaningless. An infinity that all sources have at the same
// position, such as in an attention mask, is kept; any other number that is not finite is an ErrNotFinite.
type Average struct {
	sources []*input  // those with a weight above 0
	shares  []float64 // the shares of sources
	all     []*input  // sources, and other files that are read
	outer   *outer    // what to make of the mean, or nil
	lead    *input    // the source with the largest weight
	header  []byte
	tensors []safetensors.Tensor          // of the lead, in the order of their data
	means   map[string]safetensors.Tensor // the mean of each variance, by the variance's name
	size    int64
	piece   int64 // size of a Stream's piece, in bytes of data
	blocks  sync.Pool
}

// block has the buffers for a piece of a tensor.
type block struct {
	sum []float64
	raw []byte
	// raws has bytes of files that are already in memory, and parts a part of each.
	raws, parts [][]byte
}

func newBlock() any { return &block{sum: make([]float64, blockBytes), raw: make([]byte, blockBytes)} }

// New reads the headers of at least one source, and checks that they can be averaged. metadata is added to that of the
// source with the largest weight. A source with weight 0 is checked but not averaged, even if it contains NaN. Errors
// name the source, and wrap safetensors.ErrFormat, ErrMismatch or ErrWeight if applicable.
func New(sources []Source, metadata map[string]string) (*Average, error) {
	total, lead, err := weigh(sources)
	if err != nil {
		return nil, err
	}
	headers, err := readHeaders(sources)
	if err != nil {
		return nil, err
	}
	a := &Average{}
	a.blocks.New = newBlock
	for i, s := range sources {
		if err := match(headers[lead], headers[i]); err != nil {
			return nil, fmt.Errorf("%w: %s and %s: %w", ErrMismatch, sources[lead].Name, s.Name, err)
		}
		if s.Weight == 0 {
			continue
		}
		in := newInput(s, headers[i], len(a.sources))
		in.share = s.Weight / total
		if a.sources, a.shares = append(a.sources, in), append(a.shares, in.share); i == lead {
			a.lead = in
		}
	}
	if err := a.lay(headers[lead], metadata); err != nil {
		return nil, err
	}
	a.all, a.piece = a.sources, pieceBytes(len(a.sources))
	for _, in := range a.sources {
		in.alike = in.isAligned(a)
	}
	return a, nil
}

// headersAtOnce is how many headers are read concurrently. Each may be large and remote.
const headersAtOnce = 8

// readHeaders reads the headers of all sources, or returns the error of the first invalid one.
func readHeaders(sources []Source) ([]*safetensors.Header, error) {
	headers, errs := make([]*safetensors.Header, len(sources)), make([]error, len(sources))
	var g errgroup.Group
	g.SetLimit(headersAtOnce)
	for i, s := range sources {
		g.Go(func() error {
			headers[i], errs[i] = safetensors.ReadHeader(s.File, s.Size)
			return nil
		})
	}
	_ = g.Wait() // errs has the errors
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", sources[i].Name, err)
		}
	}
	return headers, nil
}

// weigh sums the weights, and returns the index of the largest.
func weigh(sources []Source) (total float64, lead int, err error) {
	if len(sources) == 0 {
		return 0, 0, errors.New("average checkpoints: want at least one checkpoint")
	}
	for i, s := range sources {
		if s.Weight < 0 || math.IsNaN(s.Weight) || math.IsInf(s.Weight, 0) {
			return 0, 0, fmt.Errorf("%w: %s has %v; want a finite number of at least 0", ErrWeight, s.Name, s.Weight)
		}
		if s.Weight > sources[lead].Weight {
			lead = i
		}
		total += s.Weight
	}
	if total == 0 || math.IsInf(total, 0) {
		return 0, 0, fmt.Errorf("%w: the sum is %v; want a finite number above 0", ErrWeight, total)
	}
	return total, lead, nil
}

// match returns an error with the first difference between the tensors of two checkpoints, in the order of names.
func match(lead, other *safetensors.Header) error {
	left, right := byName(lead), byName(other)
	for len(left) > 0 || len(right) > 0 {
		switch {
		case len(right) == 0 || len(left) > 0 && left[0].Name < right[0].Name:
			return fmt.Errorf("tensor %v is only in the first", left[0])
		case len(left) == 0 || right[0].Name < left[0].Name:
			return fmt.Errorf("tensor %v is only in the second", right[0])
		case left[0].DType != right[0].DType || !slices.Equal(left[0].Shape, right[0].Shape):
			return fmt.Errorf("tensor %v is %v in the second", left[0], right[0])
		}
		left, right = left[1:], right[1:]
	}
	return nil
}

func byName(h *safetensors.Header) []safetensors.Tensor {
	return slices.SortedFunc(slices.Values(h.Tensors), func(a, b safetensors.Tensor) int { return cmp.Compare(a.Name, b.Name) })
}

func (a *Average) lay(lead *safetensors.Header, metadata map[string]string) error {
	out := safetensors.Header{Tensors: lead.Tensors, Metadata: make(map[string]string)}
	for _, m := range []map[string]string{lead.Metadata, metadata} {
		for k, v := range m {
			out.Metadata[k] = v
		}
	}
	header, err := out.Encode()
	if err != nil {
		return fmt.Errorf("the average's header: %w", err)
	}
	a.header, a.tensors, a.size = header, out.Tensors, out.Bytes+out.DataBytes()
	a.means = meansOf(out.Tensors)
	return nil
}

// Size returns the length of the average in bytes.
func (a *Average) Size() int64 { return a.size }

// ReadAt implements io.ReaderAt: it computes the bytes from off. It is safe for concurrent use.
func (a *Average) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read the average at %d: want an offset of at least 0", off)
	}
	whole := p[:max(min(int64(len(p)), a.size-off), 0)]
	if err := a.readAt(whole, off, fromFile()); err != nil {
		return 0, err
	}
	if len(whole) < len(p) {
		return len(whole), io.EOF
	}
	return len(p), nil
}

// readAt fills p with the bytes from off, which must exist.
func (a *Average) readAt(p []byte, off int64, read reader) error {
	n := 0
	if off < int64(len(a.header)) {
		n = copy(p, a.header[off:])
	}
	for n < len(p) {
		k, err := a.compute(p[n:], off+int64(n)-int64(len(a.header)), read)
		if err != nil {
			return err
		}
		n += k
	}
	return nil
}

// tensorAt returns the index of the tensor that contains a byte of the data.
func (a *Average) tensorAt(at int64) int {
	i, found := slices.BinarySearchFunc(a.tensors, at, func(t safetensors.Tensor, at int64) int { return cmp.Compare(t.Begin, at) })
	if !found {
		i--
	}
	for a.tensors[i].End == at { // skip empty tensors, which start at the same byte as the next
		i++
	}
	return i
}

// compute fills the start of p with the data from at, up to one block of one tensor.
func (a *Average) compute(p []byte, at int64, read reader) (int, error) {
	t := a.tensors[a.tensorAt(at)]
	size := t.DType.Size()
	from := (at - t.Begin) / size * size // in the tensor: the first byte of the element that contains at
	skip := int(at - t.Begin - from)
	want := min(int64(len(p)+skip), t.End-t.Begin-from, blockBytes)
	want = (want + size - 1) / size * size
	if skip == 0 && want <= int64(len(p)) {
		return int(want), a.mean(t, from, p[:want], read)
	}
	whole := make([]byte, want)
	if err := a.mean(t, from, whole, read); err != nil {
		return 0, err
	}
	return copy(p, whole[skip:]), nil
}

// mean computes the elements of a tensor that start at a byte, until out is full.
func (a *Average) mean(t safetensors.Tensor, from int64, out []byte, read reader) error {
	if !t.DType.IsFloat() {
		got, err := read.bytes(a.lead, t, from, out)
		copy(out, got)
		return err
	}
	b, _ := a.blocks.Get().(*block)
	defer a.blocks.Put(b)
	raw, sum := b.raw[:len(out)], b.sum[:int64(len(out))/t.DType.Size()]
	m, spreads := a.means[t.Name]
	if read.inMemory && t.DType != safetensors.F64 && !spreads && a.outer == nil {
		if whole, err := a.fused(b, t, from, out, read); whole || err != nil {
			return err
		}
	}
	if err := a.addUp(t, from, raw, sum, read); err != nil {
		return err
	}
	if spreads {
		if err := a.addSpread(sum, m, from/t.DType.Size(), read); err != nil {
			return err
		}
	}
	if a.outer != nil {
		if err := a.outer.step(sum, t, from, read); err != nil {
			return err
		}
	}
	whole := put(out, sum, t.DType)
	if whole && (spreads || a.outer != nil) {
		whole = !slices.ContainsFunc(decoded(out, len(sum), t.DType), infinite) // a result other than the mean may exceed the type
	}
	if whole {
		return nil
	}
	return a.checkFinite(t, from, out, sum, read)
}

// addUp sets sum to the sources' weighted sum.
func (a *Average) addUp(t safetensors.Tensor, from int64, raw []byte, sum []float64, read reader) error {
	if t.DType == safetensors.F64 {
		return a.addWide(t, from, raw, sum, read)
	}
	for k, s := range a.sources {
		got, err := read.bytes(s, t, from, raw)
		switch {
		case err != nil:
			return err
		case k == 0:
			set(sum, got, s.share, t.DType)
		default:
			add(sum, got, s.share, t.DType)
		}
	}
	return nil
}

// addWide adds 64-bit numbers, for which float64 sums do not have spare digits. It sums the differences from the lead,
// which are 0 if all are equal.
func (a *Average) addWide(t safetensors.Tensor, from int64, raw []byte, sum []float64, read reader) error {
	base := make([]float64, len(sum))
	got, err := read.bytes(a.lead, t, from, raw)
	if err != nil {
		return err
	}
	add(base, got, 1, t.DType)
	clear(sum)
	for _, s := range a.sources {
		if got, err = read.bytes(s, t, from, raw); err != nil {
			return err
		}
		addDifference(sum, got, base, s.share)
	}
	for k, difference := range sum {
		if sum[k] = base[k]; difference != 0 {
			sum[k] += difference
		}
	}
	return nil
}

// checkFinite handles a block's numbers that are not finite: those that all sources have are kept, others are an error.
func (a *Average) checkFinite(t safetensors.Tensor, from int64, out []byte, sum []float64, read reader) error {
	size := int(t.DType.Size())
	rounded := decoded(out, len(sum), t.DType)
	lead, err := read.bytes(a.lead, t, from, make([]byte, len(out)))
	if err != nil {
		return err
	}
	buffer, values := make([]byte, len(out)), decoded(lead, len(sum), t.DType)
	for _, s := range a.sources {
		raw, err := read.bytes(s, t, from, buffer)
		if err != nil {
			return err
		}
		others := decoded(raw, len(sum), t.DType)
		for k, v := range rounded {
			at := k * size
			same := string(raw[at:at+size]) == string(lead[at:at+size])
			if finite(v) || same || finite(values[k]) && finite(others[k]) {
				continue
			}
			return fmt.Errorf("%w: tensor %q, element %d: it differs between %s and %s, and at least one value is NaN or infinite",
				ErrNotFinite, t.Name, from/int64(size)+int64(k), a.lead.Name, s.Name)
		}
	}
	for k, v := range rounded {
		if !finite(v) && finite(values[k]) {
			return fmt.Errorf("%w: tensor %q, element %d: the result exceeds the largest %v",
				ErrNotFinite, t.Name, from/int64(size)+int64(k), t.DType)
		}
		if at := k * size; !finite(v) {
			copy(out[at:at+size], lead[at:at+size])
		}
	}
	return nil
}

func infinite(v float64) bool { return !finite(v) }

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// decoded returns n numbers from their bytes.
func decoded(raw []byte, n int, d safetensors.DType) []float64 {
	values := make([]float64, n)
	add(values, raw, 1, d)
	return values
}
