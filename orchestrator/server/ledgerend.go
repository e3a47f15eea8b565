package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// ledgerEnd stores, in a file outside JetStream, the last batch of the ledger that this machine saw. If a store finds
// damage near its end, it truncates the ledger, and the rest looks like a valid, shorter ledger.
type ledgerEnd struct {
	mu   sync.Mutex
	file *os.File
	mark mark
}

func openLedgerEnd(path string) (*ledgerEnd, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the mark of the ledger's end: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(file, 256))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the mark of the ledger's end: %w", err), file.Close())
	}
	// Ignore an unreadable mark.
	m, _ := parseMark(data)
	return &ledgerEnd{file: file, mark: m}, nil
}

// record records a batch of the ledger and its hash. The file is not synced: the mark may lag behind but is never ahead.
func (e *ledgerEnd) record(seq uint64, hash []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if seq <= e.mark.seq {
		return nil
	}
	e.mark = mark{seq, bytes.Clone(hash)}
	return e.write()
}

// current returns the current mark.
func (e *ledgerEnd) current() mark {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mark
}

// reset removes a mark beyond the end of the ledger after that loss was accepted.
func (e *ledgerEnd) reset(last uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mark = mark{seq: last}
	return errors.Join(e.file.Truncate(0), e.write())
}

// write writes the mark to the file.
func (e *ledgerEnd) write() error {
	if _, err := e.file.WriteAt([]byte(e.mark.String()), 0); err != nil {
		return fmt.Errorf("note the ledger's end: %w", err)
	}
	return nil
}

// check returns a *ledger.DamageError if a ledger that ends with batch last does not contain the marked batch. when
// describes when the mark was set.
func (m mark) check(ctx context.Context, record ledger.Ledger, last uint64, when string) error {
	switch {
	case last == 0 && m.seq > 0:
		return &ledger.DamageError{Seq: 1, Reason: fmt.Sprintf("the ledger is empty, but had %d batches %s: this is "+
			"another NATS or another account of it", m.seq, when)}
	case last < m.seq:
		return &ledger.DamageError{Seq: last + 1, Reason: fmt.Sprintf("the ledger ends at batch %d, but had %d batches %s: it lost its end", last, m.seq, when)}
	case len(m.hash) == 0:
		return nil
	}
	err := record.Read(ctx, m.seq, func(b *outbidv1.Batch) error {
		if b.GetSeq() == m.seq && !bytes.Equal(b.GetHash(), m.hash) {
			return &ledger.DamageError{Seq: m.seq, Reason: fmt.Sprintf("this is not the batch that was there %s: the ledger lost its end and was continued, "+
				"or is another one", when)}
		}
		return errRead
	})
	if errors.Is(err, errRead) {
		return nil
	}
	return err
}

func (e *ledgerEnd) close() error { return e.file.Close() }
