package checkpoint

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
	"github.com/outbid-dev/outbid/orchestrator/checksum"
)

const (
	// streamBytes is the memory of a Stream's pieces, for any number and size of sources.
	streamBytes = 48 << 20
	// streamPieces is how many pieces exist at once: being read, computed, or waiting for the reader.
	streamPieces = 4
	// largestPiece and smallestPiece bound the data of one piece, in bytes.
	largestPiece, smallestPiece = 4 << 20, 4 << 10
	// hashedBytes are hashed at once, during which the core is not available to others.
	hashedBytes = 256 << 10
	// headPiece is how much of a header is read at once.
	headPiece = 256 << 10
)

// ErrDamaged means that a source does not match its checksum.
var ErrDamaged = errors.New("the checkpoint is damaged")

// Stream computes an average in order, and reads each source once, in the order of its bytes. It is for remote sources
// and for remote averages. If a source does not match its known checksum, the stream fails with ErrDamaged before its
// last byte, so a store that writes whole objects never has an average of damaged data.
type Stream struct {
	average *Average
	group   *errgroup.Group
	ctx     context.Context //nolint:containedctx // lives as long as the stream
	cancel  context.CancelFunc
	inputs  []chan *piece // one for each source
	ready   chan *piece   // all pieces, in order
	free    chan *piece
	cores   chan struct{} // held while hashing or computing
	pieces  [streamPieces]*piece

	mu    sync.Mutex // protects what Read changes; held while it waits
	now   *piece     // the piece that is being read, or nil
	taken int
	sums  *checksum.Hash
	err   error
}

// piece is a part of the average: its header, or data between two element boundaries.
type piece struct {
	from, to     int64    // of the data; 0 for the header
	header, last bool     // last: no other piece follows
	raw          [][]byte // each source's data, in the average's layout
	memory, out  []byte
	missing      atomic.Int32 // sources that have not been read yet
	done         chan struct{}
}

// Stream starts to compute the average, until ctx ends. The caller must close it.
func (a *Average) Stream(ctx context.Context) *Stream {
	ctx, cancel := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	s := &Stream{
		average: a, group: group, ctx: ctx, cancel: cancel, sums: checksum.New(),
		ready: make(chan *piece, streamPieces), free: make(chan *piece, streamPieces),
		cores: make(chan struct{}, max(runtime.GOMAXPROCS(0)/2, 1)),
	}
	for i := range s.pieces {
		s.pieces[i] = &piece{raw: make([][]byte, len(a.all))}
		s.free <- s.pieces[i]
	}
	for _, in := range a.all {
		pieces := make(chan *piece, streamPieces) // with room for all pieces, so sending never blocks
		s.inputs = append(s.inputs, pieces)
		group.Go(func() error { return s.readSource(in, pieces) })
	}
	group.Go(s.cut)
	return s
}

// pieceBytes returns the data size of a piece for an average of that many files.
func pieceBytes(files int) int64 {
	return min(max(streamBytes/streamPieces/int64(files+1), smallestPiece), largestPiece)
}

// checkBytes returns the size of reads for each of that many files when they are read a second time for their
// checksums. These reads are separate requests, because the first read is in another order.
func checkBytes(files int) int64 {
	return min(max(streamBytes/int64(files+1)/2, headPiece), largestPiece)
}

// computeWith runs f, a computation. At most half of the cores compute at once, which is as fast as files can be transferred,
// so that other work on this machine finds a free core.
func (s *Stream) computeWith(f func()) {
	s.cores <- struct{}{}
	defer func() { <-s.cores }()
	f()
}

// hash adds bytes to a checksum.
func (s *Stream) hash(sum io.Writer, p []byte) {
	for len(p) > 0 {
		n := min(len(p), hashedBytes)
		s.computeWith(func() { _, _ = sum.Write(p[:n]) }) // it never fails
		p = p[n:]
	}
}

// cut divides the average into pieces, as earlier ones are consumed.
func (s *Stream) cut() error {
	defer close(s.ready)
	for _, c := range s.inputs {
		defer close(c)
	}
	a := s.average
	data := a.size - int64(len(a.header))
	if !s.offer(0, 0, data == 0) {
		return nil
	}
	for from := int64(0); from < data; {
		to := data
		if from+a.piece < data {
			to = a.elementAt(from + a.piece)
		}
		if !s.offer(from, to, to == data) {
			return nil
		}
		from = to
	}
	return nil
}

// elementAt returns the offset of the element that contains a byte of the data.
func (a *Average) elementAt(at int64) int64 {
	t := a.tensors[a.tensorAt(at)]
	return at - (at-t.Begin)%t.DType.Size()
}

// offer starts the next piece, or returns false if the stream ends.
func (s *Stream) offer(from, to int64, last bool) bool {
	var p *piece
	select {
	case p = <-s.free:
	case <-s.ctx.Done():
		return false
	}
	p.from, p.to, p.header, p.last, p.done = from, to, from == to, last, make(chan struct{})
	p.missing.Store(int32(len(s.inputs)))
	for _, c := range s.inputs {
		c <- p
	}
	s.ready <- p
	return true
}

// readSource reads a source's part of each piece. The last source to finish a piece computes it.
func (s *Stream) readSource(in *input, pieces <-chan *piece) error {
	sum := in.Sums.Check() // checksum of the bytes read; nil unless these are the whole file in order
	known := sum != nil
	checked := make(chan error, 1)
	if known && !in.alike {
		sum = nil
		s.group.Go(func() error {
			checked <- in.check(s.ctx, checkBytes(len(s.average.all)))
			return nil // the reader of the last piece returns it, before any client has that piece
		})
	}
	for p := range pieces {
		if s.ctx.Err() != nil {
			return nil //nolint:nilerr // another source failed, or the stream was closed
		}
		if err := in.readPart(s, p, sum); err != nil {
			return err
		}
		switch {
		case !p.last || !known:
		case sum != nil:
			if err := in.compare(sum); err != nil {
				return err
			}
		default:
			select {
			case err := <-checked:
				if err != nil {
					return err
				}
			case <-s.ctx.Done():
				return nil
			}
		}
		if p.missing.Add(-1) == 0 {
			s.group.Go(func() error { return s.compute(p) })
		}
	}
	return nil
}

// compute computes a piece after all of its sources were read.
func (s *Stream) compute(p *piece) error {
	a := s.average
	defer close(p.done)
	if p.header {
		p.out = a.header
		return nil
	}
	n := p.to - p.from
	p.memory = atLeast(p.memory, n)
	p.out = p.memory[:n]
	read := reader{inMemory: true, bytes: func(in *input, t safetensors.Tensor, from int64, p2 []byte) ([]byte, error) {
		if at := t.Begin + from - p.from; at >= 0 && at+int64(len(p2)) <= n {
			return p.raw[in.index][at : at+int64(len(p2))], nil
		}
		return p2, in.read(t, from, p2) // a mean whose variance is here
	}}
	for at := int64(0); at < n && s.ctx.Err() == nil; {
		var k int
		var err error
		s.computeWith(func() { k, err = a.compute(p.out[at:], p.from+at, read) })
		if err != nil {
			s.cancel() // before done is closed, so that the piece is not used
			return err
		}
		at += int64(k)
	}
	return nil
}

// Read implements io.Reader.
func (s *Stream) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.now == nil {
		if s.err != nil {
			return 0, s.err
		}
		p, ok := s.next()
		switch {
		case !ok:
			return 0, s.end()
		case len(p.out) == 0:
			s.free <- p
		default:
			s.now, s.taken = p, 0
		}
	}
	n := copy(b, s.now.out[s.taken:])
	s.hash(s.sums, b[:n])
	if s.taken += n; s.taken == len(s.now.out) {
		s.free <- s.now
		s.now = nil
	}
	return n, nil
}

// next waits for the next piece, or returns false after the last piece.
func (s *Stream) next() (*piece, bool) {
	var p *piece
	select {
	case p = <-s.ready:
	case <-s.ctx.Done():
	}
	if p == nil {
		return nil, false
	}
	select {
	case <-p.done:
	case <-s.ctx.Done():
	}
	return p, s.ctx.Err() == nil
}

// end returns how the stream ended.
func (s *Stream) end() error {
	ended := s.ctx.Err()
	err := s.group.Wait()
	if err == nil {
		err = ended
	}
	if err == nil {
		err = io.EOF
	}
	s.err = err
	return err
}

// Err returns why the stream ended early, or nil if it did not, or if it was only closed.
func (s *Stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(s.err, io.EOF) || errors.Is(s.err, context.Canceled) {
		return nil
	}
	return s.err
}

// Sums returns the checksums of the bytes that were read.
func (s *Stream) Sums() checksum.Sums {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sums.Sums()
}

// Close ends the stream, and waits until its sources are no longer read.
func (s *Stream) Close() error {
	s.cancel()
	_ = s.group.Wait() // Err returns the error
	s.mu.Lock()        // a store may still be reading, without effect
	defer s.mu.Unlock()
	s.now = nil
	for _, p := range s.pieces {
		p.out = nil
		for _, b := range append(p.raw, p.memory) {
			if b != nil {
				pieceBuffers.Put(&b)
			}
		}
		clear(p.raw)
		p.memory = nil
	}
	return nil
}

// pieceBuffers has buffers of finished streams, because a process makes one average after another.
var pieceBuffers sync.Pool //nolint:gochecknoglobals // contains *[]byte

// atLeast returns b if it has room for n bytes, or else another buffer.
func atLeast(b []byte, n int64) []byte {
	if int64(cap(b)) >= n {
		return b
	}
	if other, ok := pieceBuffers.Get().(*[]byte); ok && int64(cap(*other)) >= n {
		return *other
	}
	return make([]byte, n)
}
