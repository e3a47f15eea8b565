// Package archive stores runs of a ledger's batches as compressed objects. It does not know where a run begins or
// whether it belongs to the ledger: package ledger checks the chain of the batches that it reads here.
package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Folder is the prefix of the keys of all pieces.
const Folder = "ledger/"

// DefaultPieceBytes is the size of the batches in a piece before compression. A reader holds one piece in memory.
const DefaultPieceBytes = 16 << 20

// Store is what the archive needs of an object store.
type Store interface {
	Put(ctx context.Context, key string, r io.Reader, size int64) error
	Get(ctx context.Context, key string) (io.ReadCloser, error)
}

// Piece is a run of batches in one object.
type Piece struct {
	Key string `json:"key"`
	// First and Last are the sequence numbers of its first and its last batch.
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	// Bytes is the size of the object, and SHA256 its checksum.
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// ErrDamaged means that a piece is missing or is not what was written.
var ErrDamaged = errors.New("the archive is damaged")

// Writer writes batches in pieces. Equal batches give equal keys and equal objects of the same build, so a writer that
// begins again replaces what an interrupted one has left.
type Writer struct {
	store Store
	limit int
	// written is called with the uncompressed size of each piece that was stored.
	written func(ctx context.Context, bytes int) error

	buf    bytes.Buffer
	next   Piece
	pieces []Piece
}

// NewWriter returns a writer of pieces of about limit bytes, uncompressed. It calls written after each piece.
func NewWriter(store Store, limit int, written func(ctx context.Context, bytes int) error) *Writer {
	return &Writer{store: store, limit: limit, written: written}
}

// Add adds a batch.
func (w *Writer) Add(ctx context.Context, b *outbidv1.Batch) error {
	if w.buf.Len() == 0 {
		w.next.First = b.GetSeq()
	}
	if _, err := protodelim.MarshalTo(&w.buf, b); err != nil {
		return fmt.Errorf("archive ledger batch %d: %w", b.GetSeq(), err)
	}
	w.next.Last = b.GetSeq()
	if w.buf.Len() < w.limit {
		return nil
	}
	return w.flush(ctx)
}

// Close stores what remains, and returns all pieces in order.
func (w *Writer) Close(ctx context.Context) ([]Piece, error) {
	if w.buf.Len() > 0 {
		if err := w.flush(ctx); err != nil {
			return nil, err
		}
	}
	return w.pieces, nil
}

func (w *Writer) flush(ctx context.Context) error {
	data, err := compress(w.buf.Bytes())
	if err != nil {
		return fmt.Errorf("archive ledger batches %d to %d: %w", w.next.First, w.next.Last, err)
	}
	p := w.next
	p.Key, p.Bytes, p.SHA256 = fmt.Sprintf("%s%020d-%020d.zst", Folder, p.First, p.Last), int64(len(data)), checksum(data)
	if err := w.store.Put(ctx, p.Key, bytes.NewReader(data), p.Bytes); err != nil {
		return fmt.Errorf("archive ledger batches %d to %d: %w", p.First, p.Last, err)
	}
	w.pieces = append(w.pieces, p)
	size := w.buf.Len()
	w.buf.Reset()
	w.next = Piece{}
	return w.written(ctx, size)
}

// Read calls f with the batches of a piece. An error of the archive that a retry does not repair is an ErrDamaged.
func Read(ctx context.Context, store Store, p Piece, f func(*outbidv1.Batch) error) error {
	data, err := load(ctx, store, p)
	if err != nil {
		return err
	}
	for in := bytes.NewReader(data); in.Len() > 0; {
		b := new(outbidv1.Batch)
		if err := (protodelim.UnmarshalOptions{MaxSize: -1}).UnmarshalFrom(in, b); err != nil {
			return fmt.Errorf("%w: object %s: %w", ErrDamaged, p.Key, err)
		}
		if err := f(b); err != nil {
			return err
		}
	}
	return nil
}

// load returns the uncompressed content of a piece.
func load(ctx context.Context, store Store, p Piece) ([]byte, error) {
	in, err := store.Get(ctx, p.Key)
	if errors.Is(err, objects.ErrNotFound) {
		return nil, fmt.Errorf("%w: object %s is missing", ErrDamaged, p.Key)
	}
	if err != nil {
		return nil, fmt.Errorf("read ledger batches %d to %d from the archive: %w", p.First, p.Last, err)
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, p.Bytes+1))
	if err != nil {
		return nil, fmt.Errorf("read ledger batches %d to %d from the archive: %w", p.First, p.Last, err)
	}
	if got := checksum(data); got != p.SHA256 {
		return nil, fmt.Errorf("%w: object %s has SHA-256 %s, want %s", ErrDamaged, p.Key, got, p.SHA256)
	}
	text, err := decompress(data)
	if err != nil {
		return nil, fmt.Errorf("%w: object %s: %w", ErrDamaged, p.Key, err)
	}
	return text, nil
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func compress(data []byte) ([]byte, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	return enc.EncodeAll(data, nil), enc.Close()
}

func decompress(data []byte) ([]byte, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	return dec.DecodeAll(data, nil)
}
