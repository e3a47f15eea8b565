package endtoend

import (
	"fmt"
	"strings"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TestSurvivorsForkUnderThemis checks that the survivors of an ASHA sweep fork over unlike workers under Themis, while
// another sweep's trials may not be forked. They win mixed subsets of the offer or get leftovers, and all trials and
// steps are accounted for. The commands show what was won, and a replay of the ledger gives the same decisions.
func TestSurvivorsForkUnderThemis(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, dir, "up", "--policy", "themis", "--policy-option", "lease=6s", "--policy-option", "restart=100ms", "--policy-option", "f=0",
		"--workers", "3", "--devices", "fast:1", "--devices", "middle:1", "--devices", "slow:1")
	asha := &outbidv1.Tuner{Kind: &outbidv1.Tuner_Asha{Asha: &outbidv1.Asha{MaxSteps: 180, Eta: 3, MinSteps: 20}}}
	sweep := s.submit(job{name: "survivors", mode: "fork", tuner: asha, trials: 9, change: func(s *outbidv1.SweepSpec) {
		s.Resources = &outbidv1.Resources{Forks: "auto"}
	}}.spec(t, t.TempDir()))
	other := s.submit(job{name: "other", mode: "well", tuner: random(20), trials: 4, env: map[string]string{"PACE": "20ms"}}.spec(t, t.TempDir()))
	alone := s.mustDone(other)
	done := s.mustDone(sweep)

	steps, averaged, at := int64(0), 0, int32(0)
	for _, tr := range s.trials(sweep) {
		steps += tr.GetStep()
		if tr.GetState() != outbidv1.TrialState_TRIAL_STATE_COMPLETED && tr.GetState() != outbidv1.TrialState_TRIAL_STATE_STOPPED ||
			tr.GetNode() != "" || tr.GetRestarts() != 0 {
			t.Errorf("a trial is left as %v", tr)
		}
		for _, m := range s.trial(sweep, tr.GetNumber()).GetMerges() {
			nodes := map[string]bool{}
			sum := m.GetFromStep()
			for _, f := range m.GetForks() {
				sum += f.GetCounted()
				for _, p := range f.GetPlaces() {
					nodes[p.GetNode()] = true
				}
			}
			if sum != m.GetStep() || len(nodes) != len(m.GetForks()) {
				t.Errorf("a round of trial %d from %d to %d: %v", tr.GetNumber(), m.GetFromStep(), m.GetStep(), m)
			}
			if m.GetAveragedOn() != "" {
				averaged, at = averaged+1, tr.GetNumber()
			}
		}
	}
	if averaged == 0 || done.GetSteps() != steps || steps < 180 {
		t.Fatalf("%d fork slots were averaged; the sweep counts %d steps and its trials %d: %v", averaged, done.GetSteps(), steps, done.GetNotes())
	}
	for _, tr := range s.trials(other) {
		if tr.GetStep() != 20 || len(s.trial(other, tr.GetNumber()).GetMerges()) > 0 {
			t.Errorf("a trial of the sweep that may not be forked is left as %v", tr)
		}
	}
	if alone.GetFairness().GetRho() <= 0 || done.GetFairness().GetRho() <= 0 {
		t.Errorf("rho of the two is %v and %v", alone.GetFairness(), done.GetFairness())
	}
	s.explainsMixed(dir, sweep, at)
	s.stop()
	mustRepeat(t, dir, "data")
}

// trial returns a trial with all details.
func (s *server) trial(sweep string, number int32) *outbidv1.Trial {
	s.t.Helper()
	r, err := s.GetTrial(s.t.Context(), &outbidv1.GetTrialRequest{Sweep: sweep, Trial: number})
	if err != nil {
		s.t.Fatal(err)
	}
	return r.GetTrial()
}

// explainsMixed fails unless `outbid auction` shows a subset of several types that a sweep won or got as leftovers, and
// `outbid show` the fork slots of one of its trials.
func (s *server) explainsMixed(dir, sweep string, trial int32) {
	s.t.Helper()
	got, err := s.ListRounds(s.t.Context(), &outbidv1.ListRoundsRequest{Limit: 1000, Sweep: sweep})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range got.GetRounds() {
		for _, b := range r.GetAuction().GetBidders() {
			kinds := map[string]bool{}
			var lots []string
			for _, l := range append(b.GetWon(), b.GetLeftover()...) {
				kinds[l.GetType()] = true
				lots = append(lots, fmt.Sprintf("1 %s on %s", l.GetType(), l.GetNode()))
			}
			if b.GetSweep() != sweep || len(kinds) < 2 {
				continue
			}
			text := strings.Join(strings.Fields(s.says(dir, "auction", fmt.Sprint(r.GetRound()), "-o", "json")), " ")
			for _, lot := range lots {
				if !strings.Contains(text, lot) {
					s.t.Errorf("outbid auction %d does not say %q:\n%s", r.GetRound(), lot, text)
				}
			}
			if text := s.says(dir, "auction", fmt.Sprint(r.GetRound())); !strings.Contains(text, sweep) {
				s.t.Errorf("outbid auction %d prints\n%s", r.GetRound(), text)
			}
			if text := s.says(dir, "show", fmt.Sprintf("%s/%d", sweep, trial)); !strings.Contains(text, "averaged") {
				s.t.Errorf("outbid show prints\n%s", text)
			}
			s.says(dir, "watch", sweep)
			return
		}
	}
	s.t.Errorf("%s had devices of one type in every one of %d rounds", sweep, len(got.GetRounds()))
}

// says returns a command's output.
func (s *server) says(dir string, args ...string) string {
	s.t.Helper()
	p := start(s.t, dir, append(args, "--server", s.Info.API)...)
	<-p.ended
	text, _ := p.out.text()
	if p.err != nil {
		s.t.Errorf("outbid %v: %v\n%s", args, p.err, text)
	}
	return text
}
