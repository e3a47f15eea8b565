package server

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestALedgerThatLostItsEndIsNoticed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger-end")
	record := ledger.NewMemory()
	batch := func() uint64 {
		b, err := record.Append(t.Context(), time.Unix(1000, 0), []*outbidv1.Event{{Kind: &outbidv1.Event_Note{Note: &outbidv1.Note{}}}})
		if err != nil {
			t.Fatal(err)
		}
		return b.GetSeq()
	}
	for _, tc := range []struct{ saw, lost uint64 }{
		{saw: batch()},          // a new ledger
		{saw: batch()},          // a longer one
		{saw: 9, lost: 4},       // three batches here, nine seen
		{saw: batch(), lost: 4}, // the mark does not move back
	} {
		end, err := openLedgerEnd(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(end.record(tc.saw, nil), end.close()); err != nil {
			t.Fatal(err)
		}
		if end, err = openLedgerEnd(path); err != nil {
			t.Fatal(err)
		}
		last, err := record.Last(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = end.current().check(t.Context(), record, last, "before")
		damage, found := errors.AsType[*ledger.DamageError](err)
		if found != (tc.lost > 0) || found && damage.Seq != tc.lost {
			t.Errorf("saw %d: %v, want damage of %d", tc.saw, err, tc.lost)
		}
		if err := end.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTheMarkOfTheLedgersEnd checks that a flipped bit in the mark or a truncated mark is ignored, but that a different
// ledger of the same length is detected.
func TestTheMarkOfTheLedgersEnd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger-end")
	record, other := ledger.NewMemory(), ledger.NewMemory()
	for i := range 3 {
		for _, l := range []*ledger.Memory{record, other} {
			at := time.Unix(int64(1000+i), 0)
			if l == other {
				at = at.Add(time.Hour)
			}
			b, err := l.Append(t.Context(), at, []*outbidv1.Event{{Kind: &outbidv1.Event_Note{Note: &outbidv1.Note{}}}})
			if err != nil {
				t.Fatal(err)
			}
			if end, err := openLedgerEnd(path); err != nil || l == record && end.record(b.GetSeq(), b.GetHash()) != nil || end.close() != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(l ledger.Ledger) error {
		end, err := openLedgerEnd(path)
		if err != nil {
			t.Fatal(err)
		}
		defer end.close()
		return end.current().check(t.Context(), l, 3, "before")
	}
	if err := check(record); err != nil {
		t.Error(err)
	}
	if err := check(other); err == nil || !strings.Contains(err.Error(), "batch 3 is damaged: this is not the batch that was there") {
		t.Errorf("another ledger: %v", err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(whole) {
		spoilt := bytes.Clone(whole)
		spoilt[bit/8] ^= 1 << (bit % 8)
		if m, ok := parseMark(spoilt); ok && m.String() != string(whole) {
			t.Errorf("bit %d of byte %d: it is read as %s", bit%8, bit/8, m)
		}
		if m, ok := parseMark(whole[:bit/8]); ok && m.String() != string(whole) {
			t.Errorf("cut at byte %d: it is read as %s", bit/8, m)
		}
	}
}
