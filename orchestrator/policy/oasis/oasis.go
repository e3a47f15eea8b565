// Package oasis is OASiS (Bao et al., "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018)
// for live use. A sweep is admitted on submission if some schedule over the coming slots is worth more than it costs.
// The cluster then follows that schedule, with more workers in one slot and fewer in another. Package schedule has the
// algorithm.
//
// A job of the paper is a sweep with all its trials, future ones included. A worker is the least number of devices that
// a trial needs. In a slot a sweep's workers are divided over its trials: as more trials at once, as larger gangs if
// trials are elastic, or as several forks if they may be forked. The utility is the worth of the sweep's end by the
// time since its submission. The remaining work is the tuner's forecast, at the measured speeds.
//
// # Differences from the paper
//
//   - All nodes with one type of device are one server: a promise is a number of devices of a type, not particular
//     ones. So the loss of a node breaks only promises for which the other nodes have no room. Types of different speed
//     are compared by price per unit of work.
//   - Ranks average among themselves, so parameter servers are not needed. Package schedule supports them.
//   - U and L are learnt from the latest sweeps (learn.go).
//   - A sweep that has not been measured runs on idle devices until it has been, and is then answered. A sweep that is
//     not admitted is offered again at every slot, or rejected for good (refused=reject).
//   - Schedules are reviewed when a slot begins. A sweep that is behind its schedule gets another one at any cost,
//     because it was admitted; if that ends later than promised, the promise is broken and the reason reported. A sweep
//     gives back what it no longer needs.
//   - Devices without a promise for the slot go to waiting trials until they are promised (Variant.Conserve).
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
	Variant

	slot     time.Duration
	slots    int
	restart  time.Duration
	slack    float64
	patience float64
	reject   bool
	m        memory
}

// memory is the policy's state.
type memory struct {
	// Slot is the slot of the last decision, counted from 1970.
	Slot int64 `json:"slot"`
	// Capacity is the capacity of each type then: devices, cores and GiB of the nodes that have it.
	Capacity map[string][]float64 `json:"capacity,omitempty"`
	// Admissions of sweeps by ID, and how many were made. Snapshots use an older name.
	Admissions map[string]*admission `json:"deals,omitempty"`
	Made       int                   `json:"made,omitempty"`
	// Seen describes the latest sweeps.
	Seen []seen `json:"seen,omitempty"`
}

// Variant selects rules that differ from the default ones, for comparisons. No option of the product changes them; the
// lab (orchestrator/lab/policy/ablation) has options for them.
type Variant struct {
	// History is the number of latest sweeps that prices are learnt from.
	History int
	// Ratio is a factor on the learnt ratio of the highest to the lowest price.
	Ratio float64
	// LeastWorth is the least worth of a sweep's end for learning prices, relative to the worth of an end at once.
	// The paper has none.
	LeastWorth float64
	// Conserve gives devices without a promise for the slot to waiting trials until they are promised.
	Conserve bool
}

// Default returns the variant that the product uses.
func Default() Variant { return Variant{History: 100, Ratio: 1, LeastWorth: 0.01, Conserve: true} }

// New makes the policy from its options.
func New(o *policy.Options) policy.Policy { return NewVariant(o, Default()) }

// NewVariant makes a variant of the policy from its options.
func NewVariant(o *policy.Options, v Variant) *Policy {
	p := &Policy{
		Variant: v,
		slot:    o.Duration("slot", 10*time.Minute, "length of a slot, during which a sweep's workers do not change"),
		slots:   o.Int("slots", 300, 1, 10_000, "number of slots that are planned ahead"),
		restart: o.Duration("restart", 10*time.Second, "time that a trial loses when its devices change; a trial gets no other devices or forks if less than twice that is left of a slot"),
		slack:   o.Float("slack", 0.1, 0, 10, "extra work that is promised, as a fraction of a sweep's work, for restarts and measurement errors"),
		patience: o.Float("patience", 10, 1e-3, 1e6, "number of run times after which the end of a sweep without a utility is worth half; "+
			"counted from the deadline if there is one"),
		reject: o.Text("refused", "wait", "treatment of a sweep that is not admitted: wait, it is offered again in later slots; or reject, it is stopped",
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
	d := p.newSlotDecision(v)
	d.forgetEnded()
	anew := d.review()
	plan := policy.Plan{Reason: "no sweeps that could train"}
	if jobs := v.Jobs(); len(jobs) > 0 {
		plan = d.divide(anew)
		plan.Next = d.ends(d.slot)
	}
	plan.Admissions, plan.Prices = d.said, d.published(anew)
	return plan
}

// forgetEnded removes sweeps that have ended.
func (d *slotDecision) forgetEnded() {
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

// review answers new sweeps, and reviews every admission when a slot begins or the cluster has changed. It reports
// whether something has changed.
func (d *slotDecision) review() bool {
	begins := d.slot != d.m.Slot
	if changed := !maps.EqualFunc(d.m.Capacity, d.capacityByType(), slices.Equal[[]float64]); changed {
		d.m.Capacity, begins = d.capacityByType(), true
	}
	d.m.Slot = d.slot
	var asks []*policy.App
	for _, a := range d.v.Apps {
		t := d.m.Admissions[a.ID]
		switch {
		case a.Paused || len(a.Jobs) == 0 && t == nil:
		case t == nil, t.Kind == measuring && whyUnmeasured(a) == "":
			asks = append(asks, a)
		case t.Kind == waiting && begins:
			asks = append(asks, a)
		}
	}
	if !begins && len(asks) == 0 {
		return false
	}
	d.learn(asks)
	d.openBook()
	d.enterPromises(begins)
	for _, a := range asks {
		d.answerSweep(a)
	}
	return true
}

// admittedSweeps returns the admitted sweeps in order of admission.
func (d *slotDecision) admittedSweeps() []*admittedSweep {
	var all []*admittedSweep
	for _, a := range d.v.Apps {
		if t := d.m.Admissions[a.ID]; t != nil && t.admitted() {
			all = append(all, &admittedSweep{app: a, admission: t})
		}
	}
	slices.SortStableFunc(all, func(a, b *admittedSweep) int { return cmp.Compare(a.admission.Made, b.admission.Made) })
	return all
}

// reason returns the round's reason.
func (d *slotDecision) reason(anew bool) string {
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
