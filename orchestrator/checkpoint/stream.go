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
	// streamBytes is the memory that a Stream's pieces take, whatever the number and the size of the sources.
	streamBytes = 48 << 20
	// streamPieces are under way at once: they are read, computed, or wait to be taken.
	streamPieces = 4
	// largestPiece and smallestPiece bound the data of one piece, in bytes.
	largestPiece, smallestPiece = 4 << 20, 4 << 10
	// hashedBytes are hashed at once: nothing else can have the core meanwhile.
	hashedBytes = 256 << 10
	// headPiece is how much of a header is read at once.
	headPiece = 256 << 10
)

// ErrDamaged says that a source is not what was stored: it has another sum.
var ErrDamaged = errors.New("the checkpoint is damaged")

// Stream computes an average in order and reads each source once, in its own order: for sources that are far away, and for
// an average that goes far away. A source of which a sum is known that is another ends it with ErrDamaged before its last
// byte, so a store that takes only whole objects never has an average of what is damaged.
type Stream struct {
	average *Average
	group   *errgroup.Group
	ctx     context.Context //nolint:containedctx // the stream's life
	cancel  context.CancelFunc
	inputs  []chan *piece // of each source
	ready   chan *piece   // all of them, in order
	free    chan *piece
	cores   chan struct{} // held by who hashes or computes
	pieces  [streamPieces]*piece

	mu    sync.Mutex // of what Read changes; held while it waits
	now   *piece     // whose bytes are taken; nil for none
	taken int
	sums  *checksum.Hash
	err   error
}

// piece is a part of the average: its header, or data from the beginning of one element to that of another.
type piece struct {
	from, to     int64    // of the data; 0 for the header
	header, last bool     // last: no other follows
	raw          [][]byte // what each source has there, laid as the average is
	memory, out  []byte
	missing      atomic.Int32 // sources that are not read yet
	done         chan struct{}
}

// Stream begins to compute the average, until ctx ends. Close it.
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
		pieces := make(chan *piece, streamPieces) // as many as there are: sending never waits
		s.inputs = append(s.inputs, pieces)
		group.Go(func() error { return s.readSource(in, pieces) })
	}
	group.Go(s.cut)
	return s
}

// pieceBytes is how much data a piece has, of an average of so many files.
func pieceBytes(files int) int64 {
	return min(max(streamBytes/streamPieces/int64(files+1), smallestPiece), largestPiece)
}

// checkBytes is how much is read at once of each of so many files that are read a second time for their sums. That is beside
// their reading in another order, so each is a request of its own.
func checkBytes(files int) int64 {
	return min(max(streamBytes/int64(files+1)/2, headPiece), largestPiece)
}

// busy has f compute. No more than half of the cores do so at once, which is as fast as files come and go, so that what else
// this machine does finds one free.
func (s *Stream) busy(f func()) {
	s.cores <- struct{}{}
	defer func() { <-s.cores }()
	f()
}

// hash adds bytes to a sum.
func (s *Stream) hash(sum io.Writer, p []byte) {
	for len(p) > 0 {
		n := min(len(p), hashedBytes)
		s.busy(func() { _, _ = sum.Write(p[:n]) }) // never fails
		p = p[n:]
	}
}

// cut cuts the average into pieces, as those before are taken.
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

// elementAt is where the element begins in which a byte of the data lies.
func (a *Average) elementAt(at int64) int64 {
	t := a.tensors[a.tensorAt(at)]
	return at - (at-t.Begin)%t.DType.Size()
}

// offer has the next piece made; false if the stream ends.
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

// readSource reads its part of each piece. Whose part comes last has the piece computed.
func (s *Stream) readSource(in *input, pieces <-chan *piece) error {
	sum := in.Sums.Check() // of what is read; nil if that is not the whole file in its order
	known := sum != nil
	checked := make(chan error, 1)
	if known && !in.alike {
		sum = nil
		s.group.Go(func() error {
			checked <- in.check(s.ctx, checkBytes(len(s.average.all)))
			return nil // the reader of the last piece says it, which nobody has before
		})
	}
	for p := range pieces {
		if s.ctx.Err() != nil {
			return nil //nolint:nilerr // somebody else failed, or nobody wants it any more
		}
		if err := in.take(s, p, sum); err != nil {
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

// compute computes a piece, all of whose sources are read.
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
	read := reader{there: true, bytes: func(in *input, t safetensors.Tensor, from int64, p2 []byte) ([]byte, error) {
		if at := t.Begin + from - p.from; at >= 0 && at+int64(len(p2)) <= n {
			return p.raw[in.index][at : at+int64(len(p2))], nil
		}
		return p2, in.read(t, from, p2) // a mean of which the variance is here
	}}
	for at := int64(0); at < n && s.ctx.Err() == nil; {
		var k int
		var err error
		s.busy(func() { k, err = a.compute(p.out[at:], p.from+at, read) })
		if err != nil {
			s.cancel() // before done is closed: nobody takes it
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

// next waits for the next piece; false if there is none.
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

// end says how the stream ended.
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

// Err is why the stream ended early; nil if it did not, or only because it was closed.
func (s *Stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(s.err, io.EOF) || errors.Is(s.err, context.Canceled) {
		return nil
	}
	return s.err
}

// Sums are those of what was read.
func (s *Stream) Sums() checksum.Sums {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sums.Sums()
}

// Close ends the stream and waits until nothing reads its sources any more.
func (s *Stream) Close() error {
	s.cancel()
	_ = s.group.Wait() // Err tells
	s.mu.Lock()        // a store may still read, in vain
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

// pieceBuffers are of streams that ended: a process makes one average after another.
var pieceBuffers sync.Pool //nolint:gochecknoglobals // of *[]byte

// atLeast is b if it has room for n bytes, else another buffer that has.
func atLeast(b []byte, n int64) []byte {
	if int64(cap(b)) >= n {
		return b
	}
	if other, ok := pieceBuffers.Get().(*[]byte); ok && int64(cap(*other)) >= n {
		return *other
	}
	return make([]byte, n)
}
