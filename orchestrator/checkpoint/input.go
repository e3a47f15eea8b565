package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
	"github.com/outbid-dev/outbid/orchestrator/checksum"
)

// input is a source with its share of the total weight and the positions of its tensors.
type input struct {
	Source

	index       int // among all that the average reads
	share       float64
	headerBytes int64            // before the data
	begin       map[string]int64 // of a tensor's bytes in the file
	alike       bool             // its tensors have the same order as in the average
}

func newInput(s Source, h *safetensors.Header, index int) *input {
	in := &input{Source: s, index: index, headerBytes: h.Bytes, begin: make(map[string]int64, len(h.Tensors))}
	for _, t := range h.Tensors {
		in.begin[t.Name] = h.Bytes + t.Begin
	}
	return in
}

// reader reads data of sources.
type reader struct {
	// bytes returns len(p) bytes of a tensor of a source from an offset: in p, or where they already are in memory.
	bytes func(in *input, t safetensors.Tensor, from int64, p []byte) ([]byte, error)
	// inMemory is set if the bytes of any block of one tensor are already in memory.
	inMemory bool
}

// fromFile returns a reader of the sources' files.
func fromFile() reader {
	return reader{bytes: func(in *input, t safetensors.Tensor, from int64, p []byte) ([]byte, error) {
		return p, in.read(t, from, p)
	}}
}

// read fills p with the bytes of a tensor from an offset.
func (in *input) read(t safetensors.Tensor, from int64, p []byte) error {
	if err := in.readAt(p, in.begin[t.Name]+from); err != nil {
		return fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return nil
}

// readAt fills p with the bytes of the file from off.
func (in *input) readAt(p []byte, off int64) error {
	n, err := in.File.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %s: %w", in.Name, err)
}

// readPart reads a source's part of a piece, and adds it to its checksum, if there is one.
func (in *input) readPart(s *Stream, p *piece, sum *checksum.Check) error {
	n := p.to - p.from
	if p.header && sum != nil {
		return in.addTo(s.ctx, sum, in.headerBytes, headPiece)
	}
	raw := atLeast(p.raw[in.index], n)[:n]
	p.raw[in.index] = raw
	if err := in.readRange(s.average, p.from, raw); err != nil {
		return err
	}
	if sum != nil {
		s.hash(sum, raw)
	}
	return nil
}

// readRange reads a source's data for a part of the average. Contiguous data in the source is read at once.
func (in *input) readRange(a *Average, from int64, raw []byte) error {
	to := from + int64(len(raw))
	at, begin, end := from, int64(0), int64(0) // [begin, end) of the file has the bytes from at
	flush := func() error {
		if begin == end {
			return nil
		}
		return in.readAt(raw[at-from:at-from+end-begin], begin)
	}
	if len(raw) == 0 {
		return nil
	}
	for _, t := range a.tensors[a.tensorAt(from):] {
		if t.Begin >= to {
			break
		}
		first := max(t.Begin, from)
		n := min(t.End, to) - first
		there := in.begin[t.Name] + first - t.Begin
		if there != end {
			if err := flush(); err != nil {
				return err
			}
			at, begin, end = first, there, there
		}
		end += n
	}
	return flush()
}

// isAligned reports whether its tensors have the same order as in the average.
func (in *input) isAligned(a *Average) bool {
	return !slices.ContainsFunc(a.tensors, func(t safetensors.Tensor) bool { return in.begin[t.Name] != in.headerBytes+t.Begin })
}

// check reads the whole file, in reads of once bytes, and compares its known checksum.
func (in *input) check(ctx context.Context, once int64) error {
	sum := in.Sums.Check()
	if err := in.addTo(ctx, sum, in.Size, once); err != nil || ctx.Err() != nil {
		return err
	}
	return in.compare(sum)
}

// Verify reads the sources with a known checksum, and returns an error for the first that is damaged or cannot be read.
func Verify(ctx context.Context, sources []Source) error {
	for _, s := range sources {
		if s.Sums == (checksum.Sums{}) {
			continue
		}
		if err := (&input{Source: s}).check(ctx, headPiece); err != nil {
			return err
		}
	}
	return nil
}

// addTo adds the first n bytes of a file to a checksum, in reads of once bytes, unless ctx ends.
func (in *input) addTo(ctx context.Context, sum *checksum.Check, n, once int64) error {
	p := make([]byte, min(n, once))
	for off := int64(0); off < n && ctx.Err() == nil; off += once {
		p = p[:min(once, n-off)]
		if err := in.readAt(p, off); err != nil {
			return err
		}
		_, _ = sum.Write(p) // it never fails
	}
	return nil
}

func (in *input) compare(sum *checksum.Check) error {
	if damage := sum.Damage(in.Name); damage != "" {
		return fmt.Errorf("%w: %s", ErrDamaged, damage)
	}
	return nil
}
