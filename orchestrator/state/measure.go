package state

import (
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Point is a point of a learning curve.
type Point struct {
	Step  int64
	Value float64
}

const (
	// curvePoints limits the points of a curve. When it is reached, every second point is dropped.
	curvePoints = 64
	// smoothing is the weight of a sweep's newest measurement in its running mean.
	smoothing = 0.1
)

// measure records the speed in a report, once the fork has trained for some time, and returns it in steps per second,
// or 0 if unknown.
func (s *Sweep) measure(t *Trial, l *Lease, r *outbidv1.Report) float64 {
	if r.GetTrainSeconds() <= 0 || l.Step <= l.FromStep || l.Holder == Client {
		return 0
	}
	rate := float64(l.Step-l.FromStep) / r.GetTrainSeconds()
	if math.IsInf(rate, 0) || math.IsNaN(rate) {
		return 0
	}
	if l.kind == "" {
		return rate // several types of devices
	}
	m := cluster.Speed{Type: l.kind, Devices: l.Size(), Locality: l.spread, Rate: rate}
	t.Measured = record(t.Measured, m, 1)
	s.Measured = record(s.Measured, m, smoothing)
	return rate
}

// record replaces the measurement of the same kind, or moves it towards the new one by weight.
func record(all []cluster.Speed, m cluster.Speed, weight float64) []cluster.Speed {
	for i := range all {
		if o := &all[i]; o.Type == m.Type && o.Devices == m.Devices && o.Locality == m.Locality {
			o.Rate += weight * (m.Rate - o.Rate)
			return all
		}
	}
	return append(all, m)
}

// plot adds a point to the curve. Repeated steps of a restarted fork replace the old points.
func (t *Trial) plot(step int64, value float64) {
	for len(t.Curve) > 0 && t.Curve[len(t.Curve)-1].Step >= step {
		t.Curve = slices.Clip(t.Curve[:len(t.Curve)-1]) // readers may have the points beyond
	}
	if len(t.Curve) >= curvePoints {
		kept := make([]Point, 0, curvePoints)
		for i, p := range t.Curve {
			if i%2 == 0 {
				kept = append(kept, p)
			}
		}
		t.Curve = kept
	}
	t.Curve = append(t.Curve, Point{step, value})
}

func measuredRecords(all []cluster.Speed) []*outbidv1.Throughput {
	var records []*outbidv1.Throughput
	for _, m := range all {
		records = append(records, terms.ThroughputOf(m))
	}
	return records
}

func measuredOf(records []*outbidv1.Throughput) []cluster.Speed {
	var all []cluster.Speed
	for _, r := range records {
		speed, _ := terms.SpeedOf(r)
		all = append(all, speed)
	}
	return all
}
