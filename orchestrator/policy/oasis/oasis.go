// Package oasis is OASiS (Bao et al., "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018), run live: a
// sweep is admitted when it comes if some schedule over the slots to come is worth more than it costs, and the cluster then follows
// that schedule, with more workers in one slot and fewer in another. Package schedule is its mathematics.
//
// Definition used. A sweep is a job: all its trials, those to come too. A worker is as many devices as a trial needs at least. In a
// slot a sweep's workers are divided over its trials: more trials at once, larger gangs where trials are elastic, several forks
// where they may be forked. Its utility is what the end of the sweep is worth after its submission. What it has still to do is what its tuner
// says, at the speeds that were measured.
//
// # Where this differs from the paper
//
//   - The nodes that have one type of device are one server: what is promised is a number of devices of a type, and not which. So the
//     loss of a node breaks only what the others cannot hold. Types of unlike speed are taken by price for work.
//   - Ranks average among themselves, so there are no parameter servers. Package schedule has them.
//   - U and L are learnt from the sweeps that came last (learn.go).
//   - A sweep that nobody measured yet runs on what is idle until it was, and is then answered. One that is not admitted is offered again
//     at every slot, or rejected for good (refused=reject).
//   - Schedules are looked at again when a slot begins. A sweep that is behind its own is given another, whatever it costs, as it was
//     admitted; if that ends later than was promised the promise is broken, and the reason is said. What a sweep does not need any more it
//     gives back.
//   - Devices that nobody was promised for the slot go to whoever waits, until somebody is (conserve=true).
package oasis

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Policy is OASiS.
type Policy struct {
	slot     time.Duration
	slots    int
	restart  time.Duration
	history  int
	slack    float64
	patience float64
	ratio    float64
	conserve bool
	reject   bool
	m        memory
}

// memory is what the policy knows beyond the view.
type memory struct {
	// Slot is the one in which it decided last, counted from 1970.
	Slot int64 `json:"slot"`
	// Capacity is what there was of each type then: devices, cores and GiB of the nodes that have it.
	Capacity map[string][]float64 `json:"capacity,omitempty"`
	// Admissions of sweeps, by id, and how many there were. In snapshots they have an older name.
	Admissions map[string]*admission `json:"deals,omitempty"`
	Made       int                   `json:"made,omitempty"`
	// Seen are the sweeps that came last.
	Seen []seen `json:"seen,omitempty"`
}

// New makes the policy from its options.
func New(o *policy.Options) policy.Policy {
	p := &Policy{
		slot:    o.Duration("slot", 10*time.Minute, "length of a slot, in which a sweep's workers stay as they are"),
		slots:   o.Int("slots", 300, 1, 10_000, "slots that are planned ahead"),
		restart: o.Duration("restart", 10*time.Second, "what a trial loses when its devices change; none is given other ones, or forked, with less than twice that left of a slot"),
		history: o.Int("history", 100, 1, 10_000, "sweeps that prices are learnt from, those that came last"),
		slack:   o.Float("slack", 0.1, 0, 10, "part of a sweep's work that is promised beyond it, for starts and for errors of what was measured"),
		patience: o.Float("patience", 10, 1e-3, 1e6, "run times after which the end of a sweep without utility is worth half; "+
			"with a deadline, after that"),
		ratio:    o.Float("ratio", 1, 1e-6, 1e6, "to study wrong prices: what the ratio of the highest to the lowest is taken to be, as a part of what was learnt"),
		conserve: o.Bool("conserve", true, "devices that nobody was promised for the slot go to who waits, until somebody is"),
		reject: o.Text("refused", "wait", "what becomes of a sweep that is not admitted: it waits and is offered again, or it is rejected and stopped",
			"wait", "reject") == "reject",
	}
	p.reset()
	return p
}

func (p *Policy) reset() { p.m = memory{Admissions: map[string]*admission{}} }

// Name implements policy.Policy.
func (p *Policy) Name() string { return "oasis" }

// Preempts implements policy.Preemptive.
func (p *Policy) Preempts() bool { return true }

// ForksJobs implements policy.Forking.
func (p *Policy) ForksJobs() bool { return true }

// Snapshot implements policy.Policy.
func (p *Policy) Snapshot() ([]byte, error) { return json.Marshal(p.m) }

// Restore implements policy.Policy.
func (p *Policy) Restore(b []byte) error {
	p.reset()
	if err := json.Unmarshal(b, &p.m); err != nil {
		return fmt.Errorf("oasis: snapshot: %w", err)
	}
	if p.m.Admissions == nil {
		p.m.Admissions = map[string]*admission{}
	}
	return nil
}

// Decide implements policy.Policy.
func (p *Policy) Decide(v *policy.View) policy.Plan {
	d := p.day(v)
	d.over()
	anew := d.review()
	plan := policy.Plan{Reason: "no sweeps that could train"}
	if jobs := v.Jobs(); len(jobs) > 0 {
		plan = d.divide(anew)
		plan.Next = d.ends(d.slot)
	}
	plan.Admissions, plan.Prices = d.said, d.published(anew)
	return plan
}

// over forgets sweeps that are no more.
func (d *day) over() {
	there := map[string]bool{}
	for _, a := range d.v.Apps {
		there[a.ID] = true
	}
	for _, id := range slices.Sorted(maps.Keys(d.m.Admissions)) {
		if there[id] {
			continue
		}
		if t := d.m.Admissions[id]; t.admitted() {
			d.sayOver(id, t)
		}
		delete(d.m.Admissions, id)
	}
}

// review answers sweeps that came, and looks at every admission when a slot begins or the cluster has changed. It says whether
// something is other than before.
func (d *day) review() bool {
	begins := d.slot != d.m.Slot
	if changed := !maps.EqualFunc(d.m.Capacity, d.stock(), slices.Equal[[]float64]); changed {
		d.m.Capacity, begins = d.stock(), true
	}
	d.m.Slot = d.slot
	var asks []*policy.App
	for _, a := range d.v.Apps {
		t := d.m.Admissions[a.ID]
		switch {
		case a.Paused || len(a.Jobs) == 0 && t == nil:
		case t == nil, t.Kind == measuring && d.measured(a) == "":
			asks = append(asks, a)
		case t.Kind == waiting && begins:
			asks = append(asks, a)
		}
	}
	if !begins && len(asks) == 0 {
		return false
	}
	d.learn(asks)
	d.open()
	d.keep(begins)
	for _, a := range asks {
		d.answer(a)
	}
	return true
}

// standings are the admitted sweeps that are there, the first admitted first.
func (d *day) standings() []*standing {
	var all []*standing
	for _, a := range d.v.Apps {
		if t := d.m.Admissions[a.ID]; t != nil && t.admitted() {
			all = append(all, &standing{app: a, admission: t})
		}
	}
	slices.SortStableFunc(all, func(a, b *standing) int { return cmp.Compare(a.admission.Made, b.admission.Made) })
	return all
}

// reason of a round, in words.
func (d *day) reason(anew bool) string {
	text := "within a slot: devices that became free, by what sweeps were promised"
	if anew {
		text = "a slot, or who is promised what in it, is new"
	}
	var said []string
	for _, s := range d.said {
		if len(said) == 3 {
			said = append(said, fmt.Sprintf("and %d more", len(d.said)-3))
			break
		}
		said = append(said, s.GetSweep()+" "+s.GetText())
	}
	return strings.Join(append([]string{text}, said...), "; ")
}

// Kinds of admissions.
const (
	measuring = outbidv1.AdmissionKind_ADMISSION_KIND_MEASURING
	waiting   = outbidv1.AdmissionKind_ADMISSION_KIND_WAITING
	rejected  = outbidv1.AdmissionKind_ADMISSION_KIND_REJECTED
	admitted  = outbidv1.AdmissionKind_ADMISSION_KIND_ADMITTED
	broken    = outbidv1.AdmissionKind_ADMISSION_KIND_BROKEN
)
