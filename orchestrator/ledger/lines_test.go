package ledger_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// written returns three batches and their lines.
func written(t *testing.T) (batches []*outbidv1.Batch, text string) {
	t.Helper()
	var prev []byte
	var out bytes.Buffer
	for i := range 3 {
		events := []*outbidv1.Event{
			{Kind: &outbidv1.Event_OrchestratorStarted{OrchestratorStarted: &outbidv1.OrchestratorStarted{Term: uint64(i), Version: "<1>"}}},
			{Kind: &outbidv1.Event_LeaseEnded{LeaseEnded: &outbidv1.LeaseEnded{Sweep: "s-1", DeviceSeconds: 0.1 + float64(i)/3}}},
		}
		b, err := ledger.NewBatch(uint64(i+1), time.Unix(100, int64(i)).UTC(), prev, events)
		if err != nil {
			t.Fatal(err)
		}
		if err := ledger.WriteLine(&out, b); err != nil {
			t.Fatal(err)
		}
		batches, prev = append(batches, b), b.GetHash()
	}
	return batches, out.String()
}

func fileOf(text string) *ledger.Lines {
	return ledger.NewLines(func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil })
}

func TestLinesReadBack(t *testing.T) {
	t.Parallel()
	want, text := written(t)
	for from := range uint64(4) {
		var got []*outbidv1.Batch
		err := fileOf(text).Read(t.Context(), from, func(b *outbidv1.Batch) error { got = append(got, b); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[max(from, 1)-1:], got, protocmp.Transform()); diff != "" {
			t.Errorf("from %d (-want +got):\n%s", from, diff)
		}
	}
}

func TestDamagedLinesAreNamed(t *testing.T) {
	t.Parallel()
	_, text := written(t)
	for _, c := range []struct {
		name, text, want string
		seq              uint64
	}{
		{"changed", strings.Replace(text, `"term":"2"`, `"term":"3"`, 1), "its line has hash", 3},
		{"missing", text[strings.Index(text, "\n")+1:], "it is batch 2", 1},
		{"cut short", text[:len(text)-20], "not JSON", 3},
		{"a hole", strings.Replace(text, "\n", "\n\n", 1), "its line is empty", 2},
		{"unknown event", strings.Replace(text, "lease_ended", "lease_bended", 1), "its event 1 cannot be read", 1},
	} {
		var damage *ledger.DamageError
		_, err := fileOf(c.text).Last(t.Context())
		if !errors.As(err, &damage) || damage.Seq != c.seq || !strings.Contains(damage.Reason, c.want) {
			t.Errorf("%s: %v, want batch %d and %q", c.name, err, c.seq, c.want)
		}
	}
}
