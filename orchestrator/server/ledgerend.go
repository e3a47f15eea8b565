package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
)

// ledgerEnd remembers, in a file beside JetStream's, the last batch that this machine saw in the ledger. A store that
// finds damage near its end cuts it off there, and what is left is a whole ledger, only shorter: nothing in it tells.
type ledgerEnd struct {
	mu   sync.Mutex
	file *os.File
	seq  uint64
}

func openLedgerEnd(path string) (*ledgerEnd, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the mark of the ledger's end: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(file, 64))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the mark of the ledger's end: %w", err), file.Close())
	}
	// One that cannot be read stands for nothing.
	seq, _ := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	return &ledgerEnd{file: file, seq: seq}, nil
}

// saw notes a batch that is in the ledger. It is not synced: the mark may lag behind, never run ahead.
func (e *ledgerEnd) saw(seq uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if seq <= e.seq {
		return nil
	}
	e.seq = seq
	if _, err := e.file.WriteAt(fmt.Appendf(nil, "%020d\n", seq), 0); err != nil {
		return fmt.Errorf("note the ledger's end: %w", err)
	}
	return nil
}

// check fails with a *ledger.DamageError if the ledger has become shorter.
func (e *ledgerEnd) check(ctx context.Context, record ledger.Ledger) error {
	last, err := record.Last(ctx)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if last == 0 && e.seq > 0 {
		return &ledger.DamageError{Seq: 1, Reason: fmt.Sprintf("the ledger is empty, but reached %d when it was last open here: this is "+
			"another NATS, or one that was given users since ('outbid nats init --take-over' gives these keys what it held before)", e.seq)}
	}
	if last < e.seq {
		return &ledger.DamageError{Seq: last + 1, Reason: fmt.Sprintf(
			"the ledger ends at %d, but reached %d when it was last open here: it lost its end", last, e.seq)}
	}
	return nil
}

func (e *ledgerEnd) close() error { return e.file.Close() }
