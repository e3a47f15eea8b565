package state_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Attributes from training code stay with the trial, each name with its newest value, also after a restart. A report
// with only attributes does not replace the last report, and an earlier state does not change.
func TestNotesStayWithTheTrial(t *testing.T) {
	t.Parallel()
	st, sweep := running(t, spec(1), 1)
	noting := func(step int64, metrics bool, attributes map[string]string) *outbidv1.Event {
		e := says(0, step, .5)
		r := e.GetTrialReported().GetReport()
		r.Seq, r.Attributes = uint64(step), attributes
		if !metrics {
			r.Metrics = nil
		}
		return e
	}
	apply(t, st, noting(1, true, map[string]string{"data": `"v1"`, "size": "3"}))
	before := sweep.Trials[0].Attributes
	apply(t, st, noting(2, true, nil), noting(3, false, map[string]string{"data": `"v2"`}))
	want := map[string]string{"data": `"v2"`, "size": "3"}
	again, err := state.Restore(st.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	for name, trial := range map[string]*state.Trial{"live": st.Sweeps["s-1"].Trials[0], "restored": again.Sweeps["s-1"].Trials[0]} {
		if diff := cmp.Diff(want, trial.Attributes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if trial.Last.GetStep() != 2 || len(trial.Last.GetMetrics()) == 0 {
			t.Errorf("%s: the last report is %v", name, trial.Last)
		}
	}
	if before["data"] != `"v1"` {
		t.Errorf("an earlier state now says %v", before)
	}
}
