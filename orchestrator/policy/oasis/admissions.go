package oasis

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/oasis/schedule"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// admission is the answer to a sweep.
type admission struct {
	Kind outbidv1.AdmissionKind `json:"kind"`
	// Made numbers admitted sweeps in the order of their admission.
	Made int `json:"made,omitempty"`
	// Shares of an admitted sweep, from the present slot on, by slot and type.
	Shares []share `json:"shares,omitempty"`
	// Promised is the end promised at admission. Paused means that the sweep has been paused since.
	Promised time.Time `json:"promised,omitzero"`
	Paused   bool      `json:"paused,omitempty"`
	// Left is the number of steps left when the last slot began.
	Left float64 `json:"left,omitempty"`
	// Worth and Cost are from the admission, and Size is the number of devices per worker.
	Worth float64 `json:"worth,omitempty"`
	Cost  float64 `json:"cost,omitempty"`
	Size  int     `json:"size,omitempty"`
	// Said is the last message sent to the sweep, without numbers that change all the time.
	Said string `json:"said,omitempty"`
}

// share is a number of workers on a type in a slot.
type share struct {
	Slot    int64  `json:"slot"`
	Type    string `json:"type"`
	Workers int    `json:"workers"`
}

// admitted reports whether the sweep is promised workers.
func (a *admission) admitted() bool { return a.Kind == admitted || a.Kind == broken }

// openBook starts an empty book. It covers twice as many slots as are planned ahead, to find out when a sweep that is
// not admitted now would be.
func (d *slotDecision) openBook() { d.book = schedule.New(2*d.slots, d.capacity, d.prices()) }

// enterPromises enters the existing promises. When a slot begins, it gives sweeps that are behind another schedule and
// trims those of sweeps that are ahead.
func (d *slotDecision) enterPromises(begins bool) {
	standings := d.admittedSweeps()
	lost := map[*admission]int{}
	for _, s := range standings {
		lost[s.admission] = d.enterPromise(s)
	}
	if !begins {
		return
	}
	for _, s := range standings {
		if s.app.Paused {
			s.admission.Shares, s.admission.Paused = nil, true
			continue
		}
		if len(s.app.Jobs) == 0 {
			continue // its tuner is deciding
		}
		w := d.requirementOf(s.app)
		have := d.stepsOf(s.admission.Shares, w)
		switch {
		case have < w.steps-1e-6*max(1, w.steps):
			d.reschedule(s, w, have, lost[s.admission])
		default:
			d.trimShares(s.admission, w, have)
		}
		s.admission.Left = w.steps
	}
	d.rebuildBook(standings)
	for _, s := range standings {
		d.sayAdmitted(s.app.ID, s.admission)
	}
}

// enterPromise promises the rest of a schedule as far as there is room, and returns the number of worker slots that no
// longer fit.
func (d *slotDecision) enterPromise(s *admittedSweep) (lost int) {
	w := d.requirementOf(s.app)
	var kept []share
	for _, one := range s.admission.Shares {
		if one.Slot < d.slot {
			continue
		}
		k, slot := slices.Index(d.types, one.Type), int(one.Slot-d.slot)
		n := 0
		if k >= 0 && slot < 2*d.slots {
			n = min(one.Workers, d.book.Room(slot, k, w.worker))
		}
		lost += one.Workers - n
		if one.Workers = n; n > 0 {
			kept = append(kept, one)
			d.book.Promise(w.worker, []schedule.Share{{Slot: slot, Server: k, Workers: n}})
		}
	}
	s.admission.Shares = kept
	return lost
}

// rebuildBook rebuilds the book after schedules have changed.
func (d *slotDecision) rebuildBook(standings []*admittedSweep) {
	d.openBook()
	for _, s := range standings {
		d.enterPromise(s)
	}
}

// stepsOf returns the steps that the workers of the shares do.
func (d *slotDecision) stepsOf(shares []share, w *requirement) (steps float64) {
	for _, s := range shares {
		steps += d.stepsOfWorker(s, w) * float64(s.Workers)
	}
	return steps
}

// stepsOfWorker returns the steps of one worker of a share.
func (d *slotDecision) stepsOfWorker(s share, w *requirement) float64 {
	k := slices.Index(d.types, s.Type)
	if k < 0 {
		return 0
	}
	return w.rates[k] * d.Policy.slot.Seconds() * d.fractionLeft(int(s.Slot-d.slot))
}

// reschedule gives a sweep that is behind another schedule at any cost: if possible one that ends by the promised time.
func (d *slotDecision) reschedule(s *admittedSweep, w *requirement, have float64, lost int) {
	why := fmt.Sprintf("%.3g steps are left where %.3g were planned to be", w.steps, have)
	switch {
	case lost > 0:
		why = "devices that it was promised are gone"
	case s.admission.Paused:
		why = "it was paused"
	case s.admission.Left > 0 && w.steps > s.admission.Left*(1+1e-6):
		why = fmt.Sprintf("it has %.3g more steps to do than before: work was lost, as with a node, or its tuner wants more", w.steps-s.admission.Left)
	}
	d.removeShares(s.admission, w)
	o := d.offerBy(s, w)
	if o.Schedule == nil {
		o = d.offer(s.app, w, w.steps*(1+d.slack), 2*d.slots)
	}
	if o.Schedule == nil { // the most that is possible
		o = d.offerLess(s.app, w)
	}
	s.admission.Shares = d.shares(o.Schedule)
	d.book.Promise(w.worker, o.Schedule)
	s.admission.Paused = false
	if ends := d.scheduleEnd(s.admission); ends.After(s.admission.Promised) {
		s.admission.Kind = broken
		s.admission.Said = ""
		d.sayBroken(s.app.ID, s.admission, why)
	}
}

// offerBy returns the best schedule that keeps a sweep's promise, with slack if possible.
func (d *slotDecision) offerBy(s *admittedSweep, w *requirement) (o schedule.Offer) {
	left := s.admission.Promised.Sub(d.begins(d.slot))
	before := min(2*d.slots, int((left+d.Policy.slot-1)/d.Policy.slot))
	if before < 1 {
		return o
	}
	if o = d.offer(s.app, w, w.steps*(1+d.slack), before); o.Schedule == nil && d.slack > 0 {
		o = d.offer(s.app, w, w.steps, before)
	}
	return o
}

// offerLess returns the best schedule for a sweep that cannot end within the planned slots: for half of its work, a
// quarter, and so on.
func (d *slotDecision) offerLess(a *policy.App, w *requirement) (o schedule.Offer) {
	for part := 0.5; part > 1e-6 && o.Schedule == nil; part /= 2 {
		o = d.offer(a, w, w.steps*part, 2*d.slots)
	}
	return o
}

// removeShares removes a sweep's shares from the book.
func (d *slotDecision) removeShares(t *admission, w *requirement) {
	for _, s := range t.Shares {
		if k := slices.Index(d.types, s.Type); k >= 0 {
			d.book.Promise(w.worker, []schedule.Share{{Slot: int(s.Slot - d.slot), Server: k, Workers: -s.Workers}})
		}
	}
	t.Shares = nil
}

// trimShares gives back shares that a sweep no longer needs, the latest first.
func (d *slotDecision) trimShares(t *admission, w *requirement, have float64) {
	need := w.steps * (1 + d.slack)
	for i := len(t.Shares) - 1; i >= 0; i-- {
		s := &t.Shares[i]
		each := d.stepsOfWorker(*s, w)
		for s.Workers > 0 && have-each >= need && (i > 0 || s.Workers > 1) {
			s.Workers--
			have -= each
		}
		if s.Workers > 0 {
			break
		}
		t.Shares = t.Shares[:i]
	}
}

// shares converts a schedule.
func (d *slotDecision) shares(s []schedule.Share) []share {
	all := make([]share, len(s))
	for i, one := range s {
		all[i] = share{d.slot + int64(one.Slot), d.types[one.Server], one.Workers}
	}
	slices.SortFunc(all, func(a, b share) int { return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Type, b.Type)) })
	return all
}

// scheduleEnd returns when the last share of a schedule ends.
func (d *slotDecision) scheduleEnd(t *admission) time.Time {
	if len(t.Shares) == 0 {
		return d.ends(d.slot)
	}
	return d.ends(t.Shares[len(t.Shares)-1].Slot)
}

// answerSweep decides whether a sweep is admitted, and tells it its schedule.
func (d *slotDecision) answerSweep(a *policy.App) {
	t := d.m.Admissions[a.ID]
	if t == nil {
		t = &admission{}
		d.m.Admissions[a.ID] = t
	}
	if why := whyUnmeasured(a); why != "" {
		t.Kind = measuring
		d.say(a.ID, t, &outbidv1.Admission{}, why+": it runs on what is idle until it was measured")
		return
	}
	w := d.requirementOf(a)
	t.Size = w.size
	o := d.offer(a, w, w.steps*(1+d.slack), d.slots)
	t.Worth, t.Cost = o.Worth, o.Cost
	if o.Admitted {
		d.m.Made++
		t.Kind, t.Made, t.Shares = admitted, d.m.Made, d.shares(o.Schedule)
		t.Promised = d.scheduleEnd(t)
		d.book.Promise(w.worker, o.Schedule)
		d.sayAdmitted(a.ID, t)
		return
	}
	t.Kind = waiting
	if d.reject {
		t.Kind = rejected
	}
	d.sayNot(a, t, w, o)
}

// sayNot tells a sweep why it is not admitted, and when it would be: after as many slots as it takes until enough cheap
// ones are within the horizon.
func (d *slotDecision) sayNot(a *policy.App, t *admission, w *requirement, o schedule.Offer) {
	out := &outbidv1.Admission{Worth: o.Worth, Cost: o.Cost}
	text := fmt.Sprintf("not admitted now: would cost %s and be worth %s", threeDigits(o.Cost), threeDigits(o.Worth))
	if o.Schedule == nil {
		text = fmt.Sprintf("not admitted now: it cannot end in the next %d slots, whatever it pays", d.slots)
	}
	if t.Kind == rejected {
		d.say(a.ID, t, out, "rejected: "+text)
		return
	}
	more := sort.Search(d.slots, func(n int) bool {
		return d.offer(a, w, w.steps*(1+d.slack), d.slots+n+1).Admitted
	})
	if more < d.slots {
		at := d.begins(d.slot + int64(more) + 1)
		out.Again = timestamppb.New(at)
		text += "; would be at " + d.clock(at)
	} else {
		text += "; at these prices no later hour would do"
	}
	d.say(a.ID, t, out, text)
}

// sayAdmitted tells an admitted sweep its schedule if that has changed.
func (d *slotDecision) sayAdmitted(sweep string, t *admission) {
	if len(t.Shares) == 0 || t.Kind == broken && t.Said != "" {
		return
	}
	least, most := t.workers()
	text := fmt.Sprintf("admitted: %d to %d workers from %s, ends %s UTC, payoff %s",
		least, most, d.clock(d.begins(t.Shares[0].Slot)), d.clock(d.scheduleEnd(t)), threeDigits(t.Worth-t.Cost))
	if t.Said != "" && t.Said == fmt.Sprint(d.scheduleEnd(t).Unix()) {
		return // unchanged
	}
	d.say(sweep, t, d.message(t), text)
	t.Said = fmt.Sprint(d.scheduleEnd(t).Unix())
}

// sayBroken reports a broken promise.
func (d *slotDecision) sayBroken(sweep string, t *admission, why string) {
	d.say(sweep, t, d.message(t), fmt.Sprintf("promised by %s UTC, will end %s: %s", d.clock(t.Promised), d.clock(d.scheduleEnd(t)), why))
}

// sayOver reports whether the promise to a sweep that has ended was kept.
func (d *slotDecision) sayOver(sweep string, t *admission) {
	text := fmt.Sprintf("over at %s, as promised by %s UTC", d.clock(d.v.Now), d.clock(t.Promised))
	if late := d.v.Now.Sub(t.Promised); late > 0 {
		text = fmt.Sprintf("over at %s, %s later than promised, %s UTC", d.clock(d.v.Now), late.Round(time.Second), d.clock(t.Promised))
	}
	d.said = append(d.said, &outbidv1.Admission{
		Sweep: sweep, Kind: outbidv1.AdmissionKind_ADMISSION_KIND_OVER, Text: text, Worth: t.Worth, Cost: t.Cost,
		Ends: timestamppb.New(d.v.Now), Promised: timestamppb.New(t.Promised),
	})
}

// message returns an admitted sweep's schedule in the form shown to users.
func (d *slotDecision) message(t *admission) *outbidv1.Admission {
	least, most := t.workers()
	out := &outbidv1.Admission{
		Least: int32(least), Most: int32(most), WorkerDevices: int32(t.Size), Ends: timestamppb.New(d.scheduleEnd(t)),
		Promised: timestamppb.New(t.Promised), Worth: t.Worth, Cost: t.Cost,
	}
	var last *outbidv1.PromisedWorkers
	for _, s := range t.Shares {
		begins, ends := d.begins(s.Slot), timestamppb.New(d.ends(s.Slot))
		if last != nil && last.GetType() == s.Type && int(last.GetWorkers()) == s.Workers && last.GetEnds().AsTime().Equal(begins) {
			last.Ends = ends
			continue
		}
		last = &outbidv1.PromisedWorkers{Begins: timestamppb.New(begins), Ends: ends, Type: s.Type, Workers: int32(s.Workers)}
		out.Schedule = append(out.Schedule, last)
	}
	if len(out.Schedule) > 0 {
		out.Begins = out.GetSchedule()[0].GetBegins()
	}
	return out
}

// say sends a message to a sweep unless the last one was the same.
func (d *slotDecision) say(sweep string, t *admission, out *outbidv1.Admission, text string) {
	if t.Said == text {
		return
	}
	t.Said, out.Sweep, out.Kind, out.Text = text, sweep, t.Kind, text
	d.said = append(d.said, out)
}

// workers returns the fewest and the most workers at once.
func (a *admission) workers() (least, most int) {
	bySlot := map[int64]int{}
	for _, s := range a.Shares {
		bySlot[s.Slot] += s.Workers
	}
	least = math.MaxInt
	for _, n := range bySlot {
		least, most = min(least, n), max(most, n)
	}
	return min(least, most), most
}

// clock formats a time, with the date if it is not today and with seconds if slots are short.
func (d *slotDecision) clock(at time.Time) string {
	hour := "15:04"
	if d.Policy.slot < 10*time.Minute {
		hour = time.TimeOnly
	}
	if now := d.v.Now.UTC(); now.Format(time.DateOnly) != at.UTC().Format(time.DateOnly) {
		return at.UTC().Format("2 Jan " + hour)
	}
	return at.UTC().Format(hour)
}

func threeDigits(x float64) string { return fmt.Sprintf("%.3g", x) }
