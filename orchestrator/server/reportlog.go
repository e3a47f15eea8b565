package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/outbid-dev/outbid/orchestrator/atomicfile"
	"github.com/outbid-dev/outbid/orchestrator/history"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// reportLog is this machine's history of reports. It records up to which batch it is complete. If another machine led
// in between, it reads only the missing batches from the ledger.
type reportLog struct {
	*history.History
	mark string
	end  *ledgerEnd
	log  *slog.Logger
	// table interprets events.
	table state.Table
	// read reads batches of the ledger between two numbers, inclusive; it is nil without a ledger.
	read func(from, to uint64, f func(*outbidv1.Batch) error) error

	mu sync.Mutex
	// upTo is the last batch that was appended. gap is set if an earlier one is missing.
	upTo uint64
	gap  bool
	// mends are the files that are being rebuilt. mending waits for their goroutines, which ctx ends.
	mends     mends
	mending   sync.WaitGroup
	verifying sync.Mutex
	ctx       context.Context //nolint:containedctx // it lives as long as the log, not a call
}

// openReportLog opens the history in a directory.
func openReportLog(dir string, log *slog.Logger) (*reportLog, error) {
	h, err := history.Open(dir)
	if err != nil {
		return nil, err
	}
	end, err := openLedgerEnd(filepath.Join(dir, "ledger-end"))
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	l := &reportLog{History: h, mark: filepath.Join(dir, "complete-to"), end: end, log: log, table: state.NewTable()}
	l.ctx, l.mends.stop = context.WithCancel(context.Background())
	l.mends.running, l.mends.count, l.mends.failed = map[string]*mend{}, map[string]int{}, map[string]error{}
	data, err := os.ReadFile(l.mark)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, errors.Join(fmt.Errorf("open report history: %w", err), l.Close())
	default:
		// Without a readable mark everything is rebuilt.
		done, _ := parseMark(data)
		l.upTo = done.seq
	}
	return l, nil
}

// errRead ends a read of the ledger after the last missing batch.
var errRead = errors.New("all missing batches were read")

// use makes the log read missing batches from a ledger, until ctx ends.
func (l *reportLog) use(ctx context.Context, record ledger.Ledger) {
	l.mends.source = record
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
	_, err := l.mendDamaged(l.History.Append(seq, events))
	return errors.Join(filled, err)
}

// fill appends what another server wrote while this machine did not lead. Events of a newer version are a
// state.ErrNewer.
func (l *reportLog) fill(from, to uint64) error {
	if l.read == nil {
		return fmt.Errorf("the history of reports lacks batches %d to %d", from, to)
	}
	return l.read(from, to, func(b *outbidv1.Batch) error {
		events, err := ledger.Decode(b)
		if err == nil {
			err = l.end.record(b.GetSeq(), b.GetHash())
		}
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

// followAtOnce is how many batches are added before the mark is moved, while another server leads.
const followAtOnce = 10_000

// catchUp adds the ledger's missing batches while another server leads.
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
		err = l.Flush()
	}
	return err
}

// Close closes the files.
func (l *reportLog) Close() error {
	l.mends.stop()
	l.mending.Wait()
	_, err := l.mendDamaged(l.History.Close())
	return errors.Join(err, l.end.close())
}

// Flush implements control.History. The mark is written after the reports before it. It does not move while a file is
// damaged, so that the next start reads that file's missing reports from the ledger.
func (l *reportLog) Flush() error {
	l.mu.Lock()
	upTo := l.upTo
	l.mu.Unlock()
	if whole, err := l.mendDamaged(l.History.Flush()); err != nil || !whole {
		return err
	}
	return atomicfile.Write(l.mark, 0o644, func(w *os.File) error {
		_, err := fmt.Fprint(w, mark{seq: upTo})
		return err
	})
}

// complete adds the ledger's missing batches, after the state has been restored and before anything is appended, and
// rebuilds damaged files. Only rebuilding reads the whole ledger.
func (l *reportLog) complete(ctx context.Context, from ledger.Ledger, sweeps []string, reported func(sweep string) bool) error {
	last, err := from.Last(ctx)
	if err != nil {
		return err
	}
	if l.upTo > last { // the mark belongs to another ledger
		l.gap = true
	}
	missing, why := sweeps, "reports from another server's term could not be added"
	if l.upTo < last && !l.gap {
		l.gap = l.fill(l.upTo+1, last) != nil
	}
	if !l.gap {
		if missing, err = l.damaged(sweeps, reported); err != nil {
			return err
		}
		why = "files are damaged"
	}
	if len(missing) > 0 {
		l.log.Warn("rebuilding the history of reports from the ledger", "sweeps", len(missing), "why", why)
		if err := l.Rebuild(ctx, from, missing...); err != nil {
			return err
		}
	}
	l.upTo, l.gap = last, false
	l.mu.Lock()
	l.mends.reported = reported
	l.mu.Unlock()
	return l.Flush()
}

// damaged returns the sweeps with a damaged file, and those that have reported but do not have a file.
func (l *reportLog) damaged(sweeps []string, reported func(sweep string) bool) ([]string, error) {
	files, err := l.Sweeps()
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var bad []string
	for _, sweep := range files {
		_, err := l.LastSeq(sweep)
		if _, ok := errors.AsType[*history.DamageError](err); ok {
			bad = append(bad, sweep)
		} else if err != nil {
			return nil, err
		}
	}
	for _, sweep := range sweeps {
		if _, has := slices.BinarySearch(files, sweep); !has && reported(sweep) {
			bad = append(bad, sweep)
		}
	}
	return bad, nil
}
