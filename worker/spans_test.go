package worker

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestLinesAboutATrialHaveItsIDs(t *testing.T) {
	t.Parallel()
	const trace = "0af7651916cd43dd8448eb211c80319c"
	for parent, want := range map[string]any{"00-" + trace + "-b7ad6b7169203331-01": trace, "": nil, "damaged": nil} {
		var out bytes.Buffer
		f := newTelemetry(
			&Config{Node: "n", Logger: slog.New(slog.NewJSONHandler(&out, nil))}, &outbidv1.ForkRef{Sweep: "s-1", Trial: 3, LeaseId: 7},
			&outbidv1.AssignmentBody{Traceparent: parent}, nil,
		)
		f.logger().Info("a line")
		var got map[string]any
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if got["sweep"] != "s-1" || got["trial"] != 3.0 || got["trace_id"] != want {
			t.Errorf("with %q: %v", parent, got)
		}
		if traced := f.traceparent() != ""; traced != (want != nil) {
			t.Errorf("with %q the trial gets %q", parent, f.traceparent())
		}
	}
}
