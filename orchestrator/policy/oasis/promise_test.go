package oasis

import (
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/oasis/schedule"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
)

// A waiting sweep counts as being at its checkpoint even if it never reported: it is not behind, and gets no new
// promise.
func TestSavedStepsCountAsDone(t *testing.T) {
	t.Parallel()
	c := playVariant(t, unconserving(), 4, map[string]string{"slot": "10m", "slots": "20", "slack": "0"})
	a := c.sweep("s", 1, 1, 1, 1800, &terms.Utility{Kind: terms.Step, Worth: 100, By: 1e5})
	v := c.View()
	p := New(policy.NewOptions(nil)).(*Policy) //nolint:forcetypeassert // it is of this package
	whole := p.newSlotDecision(v).requirementOf(a).steps
	a.Jobs[0].StartStep = 600
	if left := p.newSlotDecision(v).requirementOf(a).steps; whole != 1800 || left != 1200 {
		t.Errorf("%g steps are left of %g, with 600 saved", left, whole)
	}
}

// A sweep that falls behind gets a schedule that keeps its promise, if there is one, and not the one with the highest
// payoff.
func TestAPromiseIsKeptIfItCanBe(t *testing.T) {
	t.Parallel()
	c := play(t, 8, map[string]string{"slot": "10m", "slots": "20"})
	a := c.sweep("s", 1, 1, 4, 6*600, &terms.Utility{Kind: terms.Step, Worth: 100, By: 1e6})
	p := New(policy.NewOptions(map[string]string{"slot": "10m", "slots": "20", "slack": "0"})).(*Policy) //nolint:forcetypeassert // it is of this package
	d := p.newSlotDecision(c.View())
	d.learn([]*policy.App{a})
	d.openBook()
	w := d.requirementOf(a)
	for slot := range 3 { // expensive, but not full
		d.book.Promise(w.worker, []schedule.Share{{Slot: slot, Workers: 4}})
	}
	s := &admittedSweep{app: a, admission: &admission{Promised: d.ends(d.slot + 2)}}
	if cheapest := d.offer(a, w, w.steps, 2*d.slots); cheapest.End <= 2 {
		t.Fatalf("the cheapest schedule ends in slot %d", cheapest.End)
	}
	if kept := d.offerBy(s, w); kept.Schedule == nil || kept.End > 2 {
		t.Errorf("promised for slot 2, and %+v", kept)
	}
	d.reschedule(s, w, 0, 0)
	if s.admission.Kind == broken || d.scheduleEnd(s.admission).After(s.admission.Promised) {
		t.Errorf("promised by %s, and will end %s", s.admission.Promised, d.scheduleEnd(s.admission))
	}
	s.admission.Left = w.steps
	w.steps *= 10 // impossible by then
	d.reschedule(s, w, 0, 0)
	if s.admission.Kind != broken || len(d.said) != 1 || !strings.Contains(d.said[0].GetText(), "3.24e+04 more steps to do than before") {
		t.Errorf("promised by %s, will end %s, and told %v", s.admission.Promised, d.scheduleEnd(s.admission), d.said)
	}
}

// A sweep that cannot end anywhere near its target does not change prices.
func TestAHopelessSweepSetsNoPrices(t *testing.T) {
	t.Parallel()
	low := func(hopeless bool) float64 {
		c := play(t, 4, map[string]string{"slots": "10"})
		c.sweep("s", 1, 1, 1, 6000, &terms.Utility{Kind: terms.Sigmoid, Worth: 10, By: 7200, Decay: 1e-3})
		if hopeless {
			c.sweep("hopeless", 1, 1, 1, 6000, &terms.Utility{Kind: terms.Sigmoid, Worth: 10, By: 60, Decay: 0.1})
		}
		return c.Decide(t, c.p).Prices.GetRanges()[0].GetLow()
	}
	if without, with := low(false), low(true); with < without/1000 {
		t.Errorf("a device costs at least %g, and %g with a sweep that is worth nothing", without, with)
	}
}
