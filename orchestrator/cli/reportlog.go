package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/outbid-dev/outbid/orchestrator/history"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// reportLog is the history of reports of this machine. It knows up to which batch it is complete: one that lies behind
// the ledger's newest snapshot, because another machine led meanwhile, is made again from the ledger.
type reportLog struct {
	*history.History
	mark string
	end  *ledgerEnd

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
	l := &reportLog{History: h, mark: filepath.Join(dir, "complete-to"), end: end}
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

// Append implements control.History.
func (l *reportLog) Append(seq uint64, events []*outbidv1.Event) error {
	l.mu.Lock()
	if seq > l.upTo+1 {
		l.gap = true
	}
	l.upTo = max(l.upTo, seq)
	l.mu.Unlock()
	return errors.Join(l.end.saw(seq), l.History.Append(seq, events))
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
	return writeWhole(l.mark, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, upTo)
		return err
	})
}

// complete makes the history again from the ledger where it lacks something, once the state has been restored and
// before anything is appended.
func (l *reportLog) complete(ctx context.Context, from ledger.Ledger, sweeps []string, log *slog.Logger) error {
	last, err := from.Last(ctx)
	if err != nil {
		return err
	}
	missing, why := sweeps, "another orchestrator has written meanwhile"
	if !l.gap && last <= l.upTo {
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
