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

// input is a source with its weight as a share of all, and where its tensors lie.
type input struct {
	Source

	index       int // among all that the average reads
	share       float64
	headerBytes int64            // before the data
	begin       map[string]int64 // of a tensor's bytes in the file
	alike       bool             // its tensors lie in the order of the average's
}

func newInput(s Source, h *safetensors.Header, index int) *input {
	in := &input{Source: s, index: index, headerBytes: h.Bytes, begin: make(map[string]int64, len(h.Tensors))}
	for _, t := range h.Tensors {
		in.begin[t.Name] = h.Bytes + t.Begin
	}
	return in
}

// reader gives what sources have.
type reader struct {
	// bytes gives the bytes of a tensor of a source from a byte of it on, as many as p has: in p, or where they are already.
	bytes func(in *input, t safetensors.Tensor, from int64, p []byte) ([]byte, error)
	// there says that they are there already, in memory, whichever of one block of one tensor are asked for.
	there bool
}

// fromFile reads from the sources' files.
func fromFile() reader {
	return reader{bytes: func(in *input, t safetensors.Tensor, from int64, p []byte) ([]byte, error) {
		return p, in.read(t, from, p)
	}}
}

// read fills p with the bytes of a tensor from a byte of it on.
func (in *input) read(t safetensors.Tensor, from int64, p []byte) error {
	if err := in.readAt(p, in.begin[t.Name]+from); err != nil {
		return fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return nil
}

// readAt fills p with the bytes of the file from off on.
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

// take reads a source's part of a piece, and adds it to its sum, if there is one.
func (in *input) take(s *Stream, p *piece, sum *checksum.Check) error {
	n := p.to - p.from
	if p.header && sum != nil {
		return in.addTo(s.ctx, sum, in.headerBytes, headPiece)
	}
	raw := atLeast(p.raw[in.index], n)[:n]
	p.raw[in.index] = raw
	if err := in.gather(s.average, p.from, raw); err != nil {
		return err
	}
	if sum != nil {
		s.hash(sum, raw)
	}
	return nil
}

// gather reads what a source has of a part of the average's data. What lies together in the source is read at once.
func (in *input) gather(a *Average, from int64, raw []byte) error {
	to := from + int64(len(raw))
	at, begin, end := from, int64(0), int64(0) // [begin, end) of the file are the bytes from at on
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

// lies says whether its tensors lie as the average's do.
func (in *input) lies(a *Average) bool {
	return !slices.ContainsFunc(a.tensors, func(t safetensors.Tensor) bool { return in.begin[t.Name] != in.headerBytes+t.Begin })
}

// check reads a whole file, so many bytes at once, and compares its sum, which is known.
func (in *input) check(ctx context.Context, once int64) error {
	sum := in.Sums.Check()
	if err := in.addTo(ctx, sum, in.Size, once); err != nil || ctx.Err() != nil {
		return err
	}
	return in.compare(sum)
}

// Verify reads sources of which a sum is known, and says which is damaged, or cannot be read.
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

// addTo adds the first n bytes of a file to a sum, unless ctx ends, so many of them by one read.
func (in *input) addTo(ctx context.Context, sum *checksum.Check, n, once int64) error {
	p := make([]byte, min(n, once))
	for off := int64(0); off < n && ctx.Err() == nil; off += once {
		p = p[:min(once, n-off)]
		if err := in.readAt(p, off); err != nil {
			return err
		}
		_, _ = sum.Write(p) // never fails
	}
	return nil
}

func (in *input) compare(sum *checksum.Check) error {
	if damage := sum.Damage(in.Name); damage != "" {
		return fmt.Errorf("%w: %s", ErrDamaged, damage)
	}
	return nil
}
