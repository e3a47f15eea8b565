package oasis

import (
	"math"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/oasis/schedule"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// seen is what prices learn from a sweep: U and L (equations 23 and 25), the highest and lowest worth of a unit of a
// resource to the latest sweeps.
//
// In the paper L depends on the worth of an end at the horizon. With a utility that falls steeply that is 1e-300, and
// prices would stay near zero until a slot is nearly full. So a sweep's lowest worth counts as at least the fraction
// Variant.LeastWorth of its highest.
type seen struct {
	// High is U: the highest worth for a unit of each resource that a worker takes. Low is the lowest worth for a unit
	// in a slot, over the whole volume that the sweep takes, which is Volume.
	High   []float64 `json:"high"`
	Low    float64   `json:"low"`
	Volume float64   `json:"volume"`
}

// learn adds new sweeps.
func (d *slotDecision) learn(came []*policy.App) {
	for _, a := range came {
		if t := d.m.Admissions[a.ID]; t != nil && t.Kind != measuring || whyUnmeasured(a) != "" {
			continue
		}
		if s, ok := d.see(a); ok {
			d.m.Seen = append(d.m.Seen, s)
		}
	}
	if over := len(d.m.Seen) - d.History; over > 0 {
		d.m.Seen = slices.Clone(d.m.Seen[over:])
	}
}

func (d *slotDecision) see(a *policy.App) (seen, bool) {
	w := d.requirementOf(a)
	fastest := slices.Max(append([]float64{0}, w.rates...)) * d.Policy.slot.Seconds()
	if fastest <= 0 || w.most < 1 {
		return seen{}, false
	}
	slots := w.steps / fastest // of one worker
	soonest := math.Ceil(slots / float64(w.most))
	age := d.begins(d.slot).Sub(a.Submitted).Seconds()
	after := func(slots float64) float64 { return w.worth(max(0, age+slots*d.Policy.slot.Seconds())) }
	most := after(soonest)
	if !(most > 0) {
		return seen{}, false
	}
	s := seen{High: make([]float64, kinds)}
	for r, takes := range w.worker {
		if takes > 0 {
			s.High[r] = most / takes
			s.Volume += takes * math.Ceil(slots)
		}
	}
	s.Low = max(after(float64(d.slots)), d.LeastWorth*w.worth(0)) / s.Volume
	return s, true
}

// prices returns the prices learnt (equation 22).
func (d *slotDecision) prices() schedule.Prices {
	p := schedule.Prices{Low: make([]float64, kinds), High: make([]float64, kinds)}
	low, volume, all := math.Inf(1), math.Inf(1), 0.0
	for _, s := range d.m.Seen {
		low, volume = min(low, s.Low), min(volume, s.Volume)
		for r := range p.High {
			p.High[r] = max(p.High[r], s.High[r])
		}
	}
	for _, of := range d.capacity {
		for _, n := range of {
			all += n
		}
	}
	if math.IsInf(low, 1) {
		low, volume = 1, 1
	}
	low *= min(1, volume/(float64(d.slots)*max(1, all))) / 4 // 1/(4 eta)
	for r := range p.Low {
		p.Low[r] = low
		p.High[r] = max(low, low*(p.High[r]/low)*d.Ratio)
	}
	return p
}

// published returns the prices in the form shown to users, or nil if they have not changed.
func (d *slotDecision) published(anew bool) *outbidv1.Prices {
	if !anew || d.book == nil {
		return nil
	}
	ranges := d.prices()
	p := &outbidv1.Prices{
		Time: timestamppb.New(d.v.Now), SlotSeconds: d.Policy.slot.Seconds(), Slots: int32(d.slots), Sweeps: int32(len(d.m.Seen)),
	}
	for r, name := range []string{"device", "cpu", "gib"} {
		p.Ranges = append(p.Ranges, &outbidv1.PriceRange{Resource: name, Low: ranges.Low[r], High: ranges.High[r]})
	}
	for k, kind := range d.types {
		var last *outbidv1.SlotPrice
		for slot := range d.slots {
			begins, ends := timestamppb.New(d.begins(d.slot+int64(slot))), timestamppb.New(d.ends(d.slot+int64(slot)))
			promised := d.book.Used(slot, k, devices)
			device, cpu, mem := d.book.Price(slot, k, devices), d.book.Price(slot, k, cpus), d.book.Price(slot, k, gib)
			if last != nil && last.GetDevice() == device && last.GetCpu() == cpu && last.GetGib() == mem && last.GetPromised() == promised {
				last.Ends = ends
				continue
			}
			last = &outbidv1.SlotPrice{
				Type: kind, Begins: begins, Ends: ends, Device: device, Cpu: cpu, Gib: mem, Promised: promised, Devices: int32(d.capacity[k][devices]),
			}
			p.Prices = append(p.Prices, last)
		}
	}
	return p
}
