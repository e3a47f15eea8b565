package endtoend

import (
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TestAPopulationOnFewerDevicesAdvancesTogether checks that six members of a population advance together on two
// devices. The ledger shows that they were never more than one interval apart, and that the bad ones continued with
// copies of the good ones and new configurations.
func TestAPopulationOnFewerDevicesAdvancesTogether(t *testing.T) {
	t.Parallel()
	const members, interval, steps = 6, 4, 20
	locks := t.TempDir()
	s := serve(t, t.TempDir(), "up", "--devices", "cpu:2")
	id := s.submit(job{
		name: "population", mode: "well", env: map[string]string{"PACE": "5ms"},
		tuner: &outbidv1.Tuner{Seed: new(uint64(7)), Kind: &outbidv1.Tuner_Pbt{Pbt: &outbidv1.Pbt{
			MaxSteps: steps, Interval: interval, Population: members, Quantile: 0.34,
		}}},
	}.spec(t, locks))
	s.mustDone(id)

	at, ended := map[int32]int64{}, map[int32]bool{}
	var first, copied, sources [members]string
	widest, pauses, waves := int64(0), 0, map[int64]bool{}
	s.events(func(e *outbidv1.Event) {
		switch k := e.GetKind().(type) {
		case *outbidv1.Event_TrialCreated:
			first[k.TrialCreated.GetTrial()] = k.TrialCreated.GetConfigJson()
		case *outbidv1.Event_TrialReported:
			r := k.TrialReported
			at[r.GetTrial()] = max(at[r.GetTrial()], r.GetReport().GetStep())
		case *outbidv1.Event_TrialReached:
			at[k.TrialReached.GetTrial()] = max(at[k.TrialReached.GetTrial()], k.TrialReached.GetStep())
		case *outbidv1.Event_TrialPaused:
			pauses++
		case *outbidv1.Event_TrialCloned:
			c := k.TrialCloned
			copied[c.GetTrial()], sources[c.GetSource()] = c.GetConfigJson(), "copied"
			waves[c.GetUntilStep()] = true
			if at[c.GetTrial()] != at[c.GetSource()] {
				t.Errorf("trial %d at step %d copied trial %d at step %d", c.GetTrial(), at[c.GetTrial()], c.GetSource(), at[c.GetSource()])
			}
		case *outbidv1.Event_TrialEnded:
			ended[k.TrialEnded.GetTrial()] = true
		}
		least, most := int64(steps), int64(0)
		for n := range int32(members) {
			if !ended[n] {
				least, most = min(least, at[n]), max(most, at[n])
			}
		}
		widest = max(widest, most-least)
	})
	if widest > interval {
		t.Errorf("members were up to %d steps apart, at an interval of %d", widest, interval)
	}
	if len(waves) < steps/interval-1 || pauses < members {
		t.Errorf("members copied others on their way to the steps %v, after %d pauses", waves, pauses)
	}
	changed := 0
	for _, tr := range s.trials(id) {
		if tr.GetStep() != steps || tr.GetState() != outbidv1.TrialState_TRIAL_STATE_COMPLETED {
			t.Errorf("a member is left as %v", tr)
		}
		if now := tr.GetConfigJson(); now != first[tr.GetNumber()] && now == copied[tr.GetNumber()] {
			changed++
		}
	}
	if changed < 2 {
		t.Errorf("%d members ended with a configuration that they did not begin with; copied: %q", changed, copied)
	}
	noTwoOwners(t, locks)
	s.stop()
}

// events calls f with every event in the ledger.
func (s *server) events(f func(*outbidv1.Event)) {
	s.t.Helper()
	r, err := s.ReadLedger(s.t.Context(), &outbidv1.ReadLedgerRequest{})
	err = drain(r, err, func(m *outbidv1.ReadLedgerResponse) error {
		events, err := ledger.Decode(m.GetBatch())
		for _, e := range events {
			f(e)
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}
