package usage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/atomicfile"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Ledger reads the batches from a sequence number to the last one.
type Ledger func(ctx context.Context, from uint64, f func(*outbidv1.Batch) error) error

// Config configures a Book. All fields are required.
type Config struct {
	// File holds the index, so that the next Open continues from there.
	File   string
	Ledger Ledger
	// Now returns the ledger's time.
	Now func() time.Time
	Log *slog.Logger
}

// Book answers queries about the device time in a ledger. It is safe for concurrent use.
type Book struct {
	Config

	// turn is held by the user of the index, also while it reads the ledger, which may take long.
	turn chan struct{}
	// stopping is closed when Follow ends.
	stopping chan struct{}
	x        *index
	// saved is the sequence number of the last batch in the file.
	saved uint64
}

// Open returns the book of a ledger. A file that is missing, damaged or of another ledger is replaced.
func Open(cfg Config) *Book {
	b := &Book{Config: cfg, turn: make(chan struct{}, 1), stopping: make(chan struct{}), x: newIndex()}
	x, err := load(cfg.File)
	switch {
	case err == nil:
		b.x, b.saved = x, x.Seq
	case !errors.Is(err, os.ErrNotExist):
		cfg.Log.Warn("the index of usage is read again from the ledger", "file", cfg.File, "err", err)
	}
	return b
}

// Sum answers a query after it has read the ledger's new batches. A period ends now at the latest. When Follow ends, the
// error is state.ErrStopping.
func (b *Book) Sum(ctx context.Context, q Query) (*Table, error) {
	if err := b.take(ctx); err != nil {
		return nil, err
	}
	defer b.give()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-b.stopping:
			cancel(state.ErrStopping)
		case <-ctx.Done():
		}
	}()
	if err := b.read(ctx); err != nil {
		if errors.Is(context.Cause(ctx), state.ErrStopping) {
			return nil, state.ErrStopping
		}
		return nil, err
	}
	now := b.Now()
	if q.Until.IsZero() || q.Until.After(now) {
		q.Until = now
	}
	return b.x.sum(q)
}

// readEvery is how often Follow reads new batches, so that a query has few to read.
const readEvery = 10 * time.Minute

// take waits for the index, until ctx or Follow ends.
func (b *Book) take(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}:
		return nil
	case <-b.stopping:
		return state.ErrStopping
	case <-ctx.Done():
		return fmt.Errorf("usage: %w", ctx.Err())
	}
}

func (b *Book) give() { <-b.turn }

// Follow reads new batches from time to time, and saves the index, until ctx ends. Then it also ends the reads of others,
// which would otherwise keep a server waiting that stops because NATS does not answer. It is called once at most.
func (b *Book) Follow(ctx context.Context) error {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			close(b.stopping)
			return b.Save()
		case <-tick.C:
		}
		err := b.take(ctx)
		if err == nil {
			err = b.read(ctx)
			b.give()
		}
		if err == nil {
			err = b.Save()
		}
		if err != nil && ctx.Err() == nil {
			b.Log.Warn("the index of usage is not up to date", "err", err)
		}
	}
}

// read adds the ledger's new batches.
func (b *Book) read(ctx context.Context) error {
	found, err := b.readFrom(ctx, b.x)
	if err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	if found {
		return nil
	}
	if b.x.Seq > 0 {
		b.Log.Warn("the index of usage is of another ledger and is made again", "file", b.File)
	}
	next := newIndex()
	if _, err := b.readFrom(ctx, next); err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	b.x, b.saved = next, 0
	return nil
}

// errOther ends the reading of a ledger that does not have the last batch of the index.
var errOther = errors.New("another ledger")

// readFrom adds the batches after the last one of an index, and reports whether the ledger has that one.
func (b *Book) readFrom(ctx context.Context, x *index) (found bool, err error) {
	found = x.Seq == 0
	err = b.Ledger(ctx, max(1, x.Seq), func(batch *outbidv1.Batch) error {
		if !found {
			if batch.GetSeq() != x.Seq || !bytes.Equal(batch.GetHash(), x.Hash) {
				return errOther
			}
			found = true
			return nil
		}
		return x.add(batch)
	})
	// A ledger that is shorter than the index says has a damaged end.
	if _, shorter := errors.AsType[*ledger.DamageError](err); errors.Is(err, errOther) || shorter && !found {
		return false, nil
	}
	return found, err
}

// saveAfter is the number of new batches that are worth writing the file.
const saveAfter = 10_000

// Save writes the index to its file if it has many new batches.
func (b *Book) Save() error {
	b.turn <- struct{}{}
	defer b.give()
	if b.x.Seq < b.saved+saveAfter {
		return nil
	}
	if err := b.x.save(b.File); err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	b.saved = b.x.Seq
	return nil
}

// fileHeader starts each file. Another format needs another header.
const fileHeader = "outbid usage 1\n"

func (x *index) save(file string) error {
	var body bytes.Buffer
	if err := gob.NewEncoder(&body).Encode(x); err != nil {
		return err
	}
	sum := sha256.Sum256(body.Bytes())
	return atomicfile.Write(file, 0o600, func(f *os.File) error {
		for _, part := range [][]byte{[]byte(fileHeader), sum[:], body.Bytes()} {
			if _, err := f.Write(part); err != nil {
				return err
			}
		}
		return nil
	})
}

func load(file string) (*index, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	body, ok := bytes.CutPrefix(data, []byte(fileHeader))
	if !ok || len(body) < sha256.Size {
		return nil, errors.New("not a file of this version")
	}
	sum, body := body[:sha256.Size], body[sha256.Size:]
	if now := sha256.Sum256(body); !bytes.Equal(sum, now[:]) {
		return nil, errors.New("its checksum does not match")
	}
	x := newIndex()
	if err := gob.NewDecoder(bytes.NewReader(body)).Decode(x); err != nil {
		return nil, err
	}
	for i, o := range x.Owners {
		x.ownerAt[o.key()] = int32(i)
	}
	for i, t := range x.Types {
		x.typeAt[t] = int32(i)
	}
	return x, nil
}
