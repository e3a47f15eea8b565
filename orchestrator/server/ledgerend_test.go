package server

import (
	"errors"
	"path/filepath"
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
		{saw: batch(), lost: 4}, // the mark does not go back
	} {
		end, err := openLedgerEnd(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(end.saw(tc.saw), end.close()); err != nil {
			t.Fatal(err)
		}
		if end, err = openLedgerEnd(path); err != nil {
			t.Fatal(err)
		}
		err = end.check(t.Context(), record)
		damage, found := errors.AsType[*ledger.DamageError](err)
		if found != (tc.lost > 0) || found && damage.Seq != tc.lost {
			t.Errorf("saw %d: %v, want damage of %d", tc.saw, err, tc.lost)
		}
		if err := end.close(); err != nil {
			t.Error(err)
		}
	}
}
