package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/ledger/ledgertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func exported(t *testing.T) (*ledger.Memory, string) {
	t.Helper()
	m := ledger.NewMemory()
	for i, text := range []string{"one", "two", "three"} {
		if _, err := m.Append(context.Background(), time.Unix(int64(i), 7), []*outbidv1.Event{
			{Kind: &outbidv1.Event_Note{Note: &outbidv1.Note{Text: text}}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if n, err := ledger.Export(context.Background(), m, &out); n != 3 || err != nil {
		t.Fatalf("exported %d batches: %v", n, err)
	}
	return m, out.String()
}

func readLines(text string) ([]*outbidv1.Batch, error) {
	l := ledger.NewLines(func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil })
	return readAll(l)
}

func readAll(l ledger.Ledger) (all []*outbidv1.Batch, err error) {
	err = l.Read(context.Background(), 1, func(b *outbidv1.Batch) error {
		all = append(all, b)
		return nil
	})
	return all, err
}

func TestAnExportIsReadAgain(t *testing.T) {
	t.Parallel()
	m, text := exported(t)
	want, err1 := readAll(m.Another())
	got, err2 := readLines(text)
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" || err1 != nil || err2 != nil {
		t.Fatal(diff, err1, err2)
	}
}

func TestADamagedExportIsNamed(t *testing.T) {
	t.Parallel()
	_, text := exported(t)
	lines := strings.SplitAfter(text, "\n")
	for name, c := range map[string]struct {
		text string
		seq  uint64
	}{
		"a batch is missing":    {lines[0] + lines[2], 2},
		"the first is missing":  {lines[1] + lines[2], 1},
		"two change places":     {lines[0] + lines[2] + lines[1], 2},
		"a batch is changed":    {lines[0] + strings.Replace(lines[1], "two", "too", 1) + lines[2], 2},
		"the end is torn":       {lines[0] + lines[1] + lines[2][:20], 3},
		"a time is another day": {strings.Replace(lines[0], "1970-01-01", "1970-01-02", 1), 1},
		"it is something else":  {"hello", 1},
	} {
		_, err := readLines(c.text)
		if damage, ok := errors.AsType[*ledger.DamageError](err); !ok || damage.Seq != c.seq {
			t.Errorf("%s: %v, want damage of batch %d", name, err, c.seq)
		}
	}
}

// The golden ledger of a release is exported byte for byte as that release wrote it.
func TestAReleasedLedgerIsExportedAsItWasWritten(t *testing.T) {
	t.Parallel()
	text := ledgertest.Unzipped(t, "testdata/1.0.0-rc.1/ledger.jsonl.gz")
	released := ledger.NewLines(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil })
	var again bytes.Buffer
	if _, err := ledger.Export(t.Context(), released, &again); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.Bytes(), text) {
		t.Error("the export differs")
	}
}
