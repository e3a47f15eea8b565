// Package checkpoint averages checkpoints: safetensors files of the same tensors, such as those that the forks of one
// trial saved, become one file of their weighted mean (HadarE's consolidation), or of the step that an outer optimizer makes
// of it (DiLoCo). It reads and computes piece by piece, so that memory is bounded whatever the files' sizes and number.
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

// blockBytes is how much of a tensor is computed at once: sums and bytes of a block stay in a core's cache.
const blockBytes = 128 << 10

// Source is one of the checkpoints that are averaged.
type Source struct {
	// Name is how errors call it.
	Name string
	// Weight is its share of the mean, relative to the others': for forks the steps that each did. At least 0, finite.
	Weight float64
	// File gives its bytes; it is read from many goroutines at once.
	File io.ReaderAt
	// Size is how many bytes File has.
	Size int64
	// Sums of those bytes, as far as they are known. Stream checks the cheapest.
	Sums checksum.Sums
}

// ErrMismatch says that checkpoints do not have the same tensors, of the same types and shapes.
var ErrMismatch = errors.New("the checkpoints differ in their tensors")

// ErrNotFinite says that some checkpoint has a NaN or an infinity where another has not, or that what is made of the mean is
// more than its type holds: the training diverged.
var ErrNotFinite = errors.New("a weight is not finite")

// ErrWeight says that a weight is no share of a mean.
var ErrWeight = errors.New("a bad weight")

// Average is the weighted mean of checkpoints, as the bytes of a safetensors file that is computed where it is read. Its
// tensors lie as in the source of the largest weight, the first of those if several are equal.
//
// Floats are added as float64 and rounded once, to the nearest: the mean of equal numbers is that number. To the mean of a
// layer's running variances is added how far the means are apart that they are around. Integers and booleans are those of
// the source of the largest weight, as no mean of them means anything. An infinity that all sources have in the same place,
// such as in an attention mask, stays one; any other number that is not finite is an ErrNotFinite.
type Average struct {
	sources []*input  // those whose weight is above 0
	shares  []float64 // theirs
	all     []*input  // these, and what else is read for it
	outer   *outer    // what is made of the mean; nil for nothing
	lead    *input    // that of the largest weight
	header  []byte
	tensors []safetensors.Tensor          // of the lead, in the order of their data
	means   map[string]safetensors.Tensor // of a variance, by its name
	size    int64
	piece   int64 // of a Stream's, in bytes of the data
	blocks  sync.Pool
}

// block is what computing a piece of a tensor takes.
type block struct {
	sum []float64
	raw []byte
	// raws are where files' bytes are already, and parts a part of each.
	raws, parts [][]byte
}

func newBlock() any { return &block{sum: make([]float64, blockBytes), raw: make([]byte, blockBytes)} }

// New reads the headers of sources, at least one, and checks that they can be averaged. metadata is added to that of the
// source of the largest weight. A source of weight 0 is checked, and then counts for nothing, even where it is NaN. Errors
// name the source, and wrap safetensors.ErrFormat, ErrMismatch or ErrWeight where that is why.
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
		in.alike = in.lies(a)
	}
	return a, nil
}

// headersAtOnce are read side by side: each may be as large as a header may be, and come from far away.
const headersAtOnce = 8

// readHeaders reads the headers of all sources, or says what is wrong with the first of which something is.
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
	_ = g.Wait() // errs has them
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", sources[i].Name, err)
		}
	}
	return headers, nil
}

// weigh adds up the weights and finds the source of the largest.
func weigh(sources []Source) (total float64, lead int, err error) {
	if len(sources) == 0 {
		return 0, 0, errors.New("average checkpoints: none is given")
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
		return 0, 0, fmt.Errorf("%w: they add up to %v; want a finite number above 0", ErrWeight, total)
	}
	return total, lead, nil
}

// match says how the tensors of two checkpoints differ, by the first in the order of names.
func match(lead, other *safetensors.Header) error {
	left, right := byName(lead), byName(other)
	for len(left) > 0 || len(right) > 0 {
		switch {
		case len(right) == 0 || len(left) > 0 && left[0].Name < right[0].Name:
			return fmt.Errorf("tensor %v is in the first alone", left[0])
		case len(left) == 0 || right[0].Name < left[0].Name:
			return fmt.Errorf("tensor %v is in the second alone", right[0])
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

// Size is how many bytes the average has.
func (a *Average) Size() int64 { return a.size }

// ReadAt implements io.ReaderAt: it computes the bytes from off on. It may be called from many goroutines at once.
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

// readAt fills p with the bytes from off on, all of which there are.
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

// tensorAt is which tensor has a byte of the data.
func (a *Average) tensorAt(at int64) int {
	i, found := slices.BinarySearchFunc(a.tensors, at, func(t safetensors.Tensor, at int64) int { return cmp.Compare(t.Begin, at) })
	if !found {
		i--
	}
	for a.tensors[i].End == at { // empty ones, which begin where the next begins
		i++
	}
	return i
}

// compute fills the beginning of p with the data from at on, as far as one block of one tensor goes.
func (a *Average) compute(p []byte, at int64, read reader) (int, error) {
	t := a.tensors[a.tensorAt(at)]
	size := t.DType.Size()
	from := (at - t.Begin) / size * size // of the tensor: the first byte of the element in which at lies
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

// mean computes the elements of a tensor from a byte of it on, as many as out has room for.
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
	if read.there && t.DType != safetensors.F64 && !spreads && a.outer == nil {
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
		whole = !slices.ContainsFunc(decoded(out, len(sum), t.DType), infinite) // what moves off the mean may be more than the type holds
	}
	if whole {
		return nil
	}
	return a.settle(t, from, out, sum, read)
}

// addUp makes sum what the sources add up to, each by its share.
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

// addWide adds numbers of 64 bits, whose sums have no digits to spare: it adds up how far each is from the lead's, which is 0
// where all are equal.
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

// settle looks at the numbers of a block that are not finite: those that every source has are kept, others are an error.
func (a *Average) settle(t safetensors.Tensor, from int64, out []byte, sum []float64, read reader) error {
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
			return fmt.Errorf("%w: tensor %q, element %d: it differs between %s and %s, and one of all is NaN or infinite",
				ErrNotFinite, t.Name, from/int64(size)+int64(k), a.lead.Name, s.Name)
		}
	}
	for k, v := range rounded {
		if !finite(v) && finite(values[k]) {
			return fmt.Errorf("%w: tensor %q, element %d: what is made of the mean is beyond the largest %v",
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

// decoded gives n numbers as their bytes have them.
func decoded(raw []byte, n int, d safetensors.DType) []float64 {
	values := make([]float64, n)
	add(values, raw, 1, d)
	return values
}
