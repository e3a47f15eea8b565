package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/outbid-dev/outbid/orchestrator/atomicfile"
	"github.com/outbid-dev/outbid/orchestrator/history"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// reportLog is the history of reports of this machine. It knows up to which batch it is complete. One that lies behind
// the ledger's newest snapshot, because another machine led meanwhile, reads what it lacks from the ledger, and no more.
type reportLog struct {
	*history.History
	mark string
	end  *ledgerEnd
	// table says what events mean.
	table state.Table
	// read reads batches of the ledger, from one to another, both included; nil as long as there is none.
	read func(from, to uint64, f func(*outbidv1.Batch) error) error

	mu sync.Mutex
	// upTo is the last batch that was appended, gap whether one before it is missing.
	upTo uint64
	gap  bool
}

// openReportLog opens the history in a directory.
func openReportLog(dir string) (*reportLog, error) {
	h, err := history.Open(dir)
	if err != nil {
		return nil, err
	}
	end, err := openLedgerEnd(filepath.Join(dir, "ledger-end"))
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	l := &reportLog{History: h, mark: filepath.Join(dir, "complete-to"), end: end, table: state.NewTable()}
	data, err := os.ReadFile(l.mark)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, errors.Join(fmt.Errorf("open report history: %w", err), l.Close())
	default:
		// One that cannot be read stands for nothing: everything is made again.
		l.upTo, _ = strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	}
	return l, nil
}

// errRead ends a read of the ledger where enough was read.
var errRead = errors.New("all that is missing was read")

// use has the log read from a ledger what it lacks, as long as ctx lasts.
func (l *reportLog) use(ctx context.Context, record ledger.Ledger) {
	l.read = func(from, to uint64, f func(*outbidv1.Batch) error) error {
		err := record.Read(ctx, from, func(b *outbidv1.Batch) error {
			if b.GetSeq() > to {
				return errRead
			}
			return f(b)
		})
		if errors.Is(err, errRead) {
			return nil
		}
		return err
	}
}

// Append implements control.History.
func (l *reportLog) Append(seq uint64, events []*outbidv1.Event) error {
	l.mu.Lock()
	upTo := l.upTo
	l.mu.Unlock()
	var filled error
	if seq > upTo+1 {
		filled = l.fill(upTo+1, seq-1)
	}
	l.mu.Lock()
	l.gap = l.gap || filled != nil
	l.upTo = max(l.upTo, seq)
	l.mu.Unlock()
	return errors.Join(filled, l.end.saw(seq), l.History.Append(seq, events))
}

// fill appends what another orchestrator wrote while this machine did not lead. What a newer version wrote is a
// state.ErrNewer.
func (l *reportLog) fill(from, to uint64) error {
	if l.read == nil {
		return fmt.Errorf("the history of reports lacks batches %d to %d", from, to)
	}
	return l.read(from, to, func(b *outbidv1.Batch) error {
		events, err := ledger.Decode(b)
		if err != nil {
			return err
		}
		for _, e := range events {
			err = errors.Join(err, state.CheckReadable(e))
			if gone := l.table.Forgotten(e); gone != "" {
				err = errors.Join(err, l.Remove(gone))
			}
		}
		if err != nil {
			return err
		}
		return l.History.Append(b.GetSeq(), events)
	})
}

// followAtOnce is how many batches are added before the mark is moved, while another orchestrator leads.
const followAtOnce = 10_000

// catchUp adds what the log lacks of the ledger, while another orchestrator leads.
func (l *reportLog) catchUp(ctx context.Context, record ledger.Ledger) error {
	last, err := record.Last(ctx)
	for err == nil && l.upTo < last {
		to := min(last, l.upTo+followAtOnce)
		if err = l.fill(l.upTo+1, to); err != nil {
			break
		}
		l.mu.Lock()
		l.upTo = to
		l.mu.Unlock()
		err = errors.Join(l.end.saw(to), l.Flush())
	}
	return err
}

// Close closes the files.
func (l *reportLog) Close() error { return errors.Join(l.History.Close(), l.end.close()) }

// Flush implements control.History. The mark is written after the reports it speaks of.
func (l *reportLog) Flush() error {
	l.mu.Lock()
	upTo := l.upTo
	l.mu.Unlock()
	if err := l.History.Flush(); err != nil {
		return err
	}
	return atomicfile.Write(l.mark, 0o644, func(w *os.File) error {
		_, err := fmt.Fprintln(w, upTo)
		return err
	})
}

// complete adds what the history lacks of the ledger, once the state has been restored and before anything is appended,
// and makes files that are damaged again. Only that reads the whole ledger.
func (l *reportLog) complete(ctx context.Context, from ledger.Ledger, sweeps []string, log *slog.Logger) error {
	last, err := from.Last(ctx)
	if err != nil {
		return err
	}
	missing, why := sweeps, "what another orchestrator wrote could not be added"
	if l.upTo < last && !l.gap {
		l.gap = l.fill(l.upTo+1, last) != nil
	}
	if !l.gap {
		if missing, err = l.damaged(); err != nil {
			return err
		}
		why = "files are damaged"
	}
	if len(missing) > 0 {
		log.Info("making the history of reports again from the ledger", "sweeps", len(missing), "why", why)
		if err := l.Rebuild(ctx, from, missing...); err != nil {
			return err
		}
	}
	l.upTo, l.gap = max(l.upTo, last), false
	return l.Flush()
}

// damaged lists the sweeps whose file cannot be trusted.
func (l *reportLog) damaged() ([]string, error) {
	sweeps, err := l.Sweeps()
	if err != nil {
		return nil, err
	}
	var bad []string
	for _, sweep := range sweeps {
		_, err := l.LastSeq(sweep)
		if _, ok := errors.AsType[*history.DamageError](err); ok {
			bad = append(bad, sweep)
		} else if err != nil {
			return nil, err
		}
	}
	return bad, nil
}
