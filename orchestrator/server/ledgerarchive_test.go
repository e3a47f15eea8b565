package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
)

// archiveResults returns one prepared error after another.
type archiveResults struct {
	errs []error
	got  []ledger.ArchiveConfig
}

func (r *archiveResults) Archive(_ context.Context, cfg ledger.ArchiveConfig) (ledger.Archived, error) {
	r.got = append(r.got, cfg)
	err := r.errs[0]
	r.errs = r.errs[1:]
	return ledger.Archived{}, err
}

// A store that is unavailable for long is logged once, and again after it was available.
func TestTheArchiverRetries(t *testing.T) {
	t.Parallel()
	away := errors.New("the store is away")
	results := &archiveResults{errs: []error{away, away, nil, away}}
	var log bytes.Buffer
	now := time.Unix(1e9, 0)
	a := &ledgerArchiver{record: results, location: "/store", keep: time.Hour, now: func() time.Time { return now }, log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 4 {
		a.archive(t.Context())
	}
	if n := strings.Count(log.String(), "the store is away"); n != 2 {
		t.Errorf("%d warnings, want 2:\n%s", n, log.String())
	}
	if want := (ledger.ArchiveConfig{Location: "/store", Before: now.Add(-time.Hour)}); results.got[0] != want {
		t.Errorf("%+v, want %+v", results.got[0], want)
	}
}

func TestAReaderFindsTheArchive(t *testing.T) {
	t.Parallel()
	data, moved := t.TempDir(), t.TempDir()
	_, err := findArchive(data, "")(t.Context(), "")
	if field, ok := errors.AsType[*FieldError](err); !ok || field.Field != "Store" {
		t.Errorf("without a store: %v", err)
	}
	if _, err := os.Stat(filepath.Join(data, "store")); !os.IsNotExist(err) {
		t.Error("a reader has created the store")
	}
	for name, c := range map[string]struct{ store, location, want string }{
		"given":    {moved, "/nowhere", moved},
		"recorded": {"", moved, moved},
	} {
		store, err := findArchive(data, c.store)(t.Context(), c.location)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if text, ok := store.(interface{ String() string }); !ok || !strings.Contains(text.String(), c.want) {
			t.Errorf("%s: %v, want %s", name, store, c.want)
		}
	}
}

func TestTheTimeToKeepTheLedger(t *testing.T) {
	t.Parallel()
	for keep, want := range map[time.Duration]time.Duration{0: DefaultLedgerKeep, KeepLedger: KeepLedger, MinLedgerKeep: MinLedgerKeep, time.Second: 0, -2: 0} {
		cfg, err := Config{Data: t.TempDir(), API: "127.0.0.1:0", LedgerKeep: keep}.filled()
		if field, bad := errors.AsType[*FieldError](err); bad != (want == 0) || bad && field.Field != "LedgerKeep" || !bad && cfg.LedgerKeep != want {
			t.Errorf("%s: %s, %v", keep, cfg.LedgerKeep, err)
		}
	}
}
