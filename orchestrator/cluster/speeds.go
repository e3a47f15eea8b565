package cluster

import "slices"

// Locality is the distance between the devices of a gang; larger is farther.
type Locality int

// The localities from close to far: behind one fast link, in one machine, in one rack, in different racks.
const (
	SameSlot Locality = iota
	SameMachine
	SameRack
	AcrossRacks
	localities
)

// String returns the name in events and tables.
func (s Locality) String() string {
	return [...]string{"slot", "machine", "rack", "cluster"}[min(max(s, 0), localities-1)]
}

// ParseLocality parses the name of a locality; "" is SameMachine.
func ParseLocality(word string) (Locality, bool) {
	if word == "" {
		return SameMachine, true
	}
	for s := SameSlot; s < localities; s++ {
		if s.String() == word {
			return s, true
		}
	}
	return SameMachine, false
}

// Slowdown returns Themis's S by locality before it is measured: 1 in a machine, 1.1 across machines, 1.3 across racks
// (NSDI 2020, section 5.2).
func Slowdown(s Locality) float64 { return [...]float64{1, 1, 1.1, 1.3}[min(max(s, 0), localities-1)] }

// Speed is a measurement of a model's training speed.
type Speed struct {
	// Type is the type of the devices; "" stands for every type without a measurement.
	Type     string
	Devices  int
	Locality Locality
	// Rate is in steps per second of the whole gang; 0 means that the model does not run there.
	Rate float64
}

// Speeds is the known training speed of a model: measurements, and slowdowns by locality if they differ from Slowdown.
// With the zero value, every device does one step per second.
type Speeds struct {
	Measured []Speed
	// S is the slowdown by locality; 0 for the default.
	S [localities]float64
	// Estimated is the estimated relative speed of device types that were not measured, or nil if they count as equal.
	Estimated map[string]float64
}

// Slowdown returns the ratio of the model's iteration time at a locality to that in one place.
func (s *Speeds) Slowdown(at Locality) float64 {
	if s != nil && s.S[at] > 0 {
		return s.S[at]
	}
	return Slowdown(at)
}

// Rate returns the steps per second of a gang of n devices of a type at a locality. Without a measurement, it scales
// the one with the nearest number of devices in proportion and divides by the slowdown of the locality. For a type
// without measurements, it scales those of another type by the ratio of their estimates.
func (s *Speeds) Rate(kind string, n int, at Locality) float64 {
	if s == nil || len(s.Measured) == 0 {
		return float64(n) / s.Slowdown(at) * s.guess(kind)
	}
	best, found := s.nearest(kind, n, at)
	if !found {
		best, found = s.nearest("", n, at)
	}
	guess := 1.0
	if !found {
		other := s.like(kind)
		if best, _ = s.nearest(other, n, at); s.Estimated[other] > 0 && s.Estimated[kind] > 0 {
			guess = s.Estimated[kind] / s.Estimated[other]
		}
	}
	rate := guess * best.Rate * float64(n) / float64(max(1, best.Devices))
	if best.Locality == at {
		return rate
	}
	return rate * s.Slowdown(best.Locality) / s.Slowdown(at)
}

// guess returns the estimated speed of a type relative to the fastest, or 1 without an estimate.
func (s *Speeds) guess(kind string) float64 {
	if s == nil || s.Estimated[kind] <= 0 {
		return 1
	}
	return s.Estimated[kind]
}

// like returns a measured type to represent one that was not measured, preferably one that it can be compared with.
func (s *Speeds) like(kind string) string {
	if s.Estimated[kind] > 0 {
		for i := range s.Measured {
			if s.Estimated[s.Measured[i].Type] > 0 {
				return s.Measured[i].Type
			}
		}
	}
	return s.Measured[0].Type
}

// nearest returns the measurement of a type with the nearest number of devices, and among those the nearest locality.
func (s *Speeds) nearest(kind string, n int, at Locality) (Speed, bool) {
	best := -1
	for i := range s.Measured {
		m := &s.Measured[i]
		if m.Type != kind {
			continue
		}
		if best < 0 || distance(m, n, at) < distance(&s.Measured[best], n, at) {
			best = i
		}
	}
	if best < 0 {
		return Speed{}, false
	}
	return s.Measured[best], true
}

// distance orders measurements: the number of devices counts more than the locality.
func distance(m *Speed, n int, at Locality) int {
	return abs(m.Devices-n)*int(localities) + abs(int(m.Locality-at))
}

func abs(n int) int { return max(n, -n) }

// Knows reports whether the model was measured on a type, or on every type.
func (s *Speeds) Knows(kind string) bool {
	return s != nil && slices.ContainsFunc(s.Measured, func(m Speed) bool { return m.Type == kind || m.Type == "" })
}

// LocalityOf returns the locality of a gang.
func LocalityOf(nodes []Node, g Gang) Locality {
	if len(g) == 0 {
		return SameSlot
	}
	first := &nodes[g[0].Node]
	if len(g) == 1 {
		slot := first.Devices[g[0].Devices[0]].Slot
		for _, d := range g[0].Devices[1:] {
			if first.Devices[d].Slot != slot {
				return SameMachine
			}
		}
		return SameSlot
	}
	for _, p := range g[1:] {
		if nodes[p.Node].Rack != first.Rack {
			return AcrossRacks
		}
	}
	return SameRack
}

// TypeOf returns the type of a gang's devices, or "" if they have several.
func TypeOf(nodes []Node, g Gang) string {
	kind := ""
	for _, p := range g {
		for _, d := range p.Devices {
			switch t := nodes[p.Node].Devices[d].Type; kind {
			case "":
				kind = t
			case t:
			default:
				return ""
			}
		}
	}
	return kind
}

// RateOf returns the steps per second of a gang. With several types, the slowest determines the pace of all (Hadar,
// section 3.1), and so does the slowest device.
func RateOf(nodes []Node, g Gang, s *Speeds) float64 {
	n, at := g.Size(), LocalityOf(nodes, g)
	if n == 0 {
		return 0
	}
	speed := 1.0
	rate, last := -1.0, ""
	for _, p := range g {
		for _, d := range p.Devices {
			dev := &nodes[p.Node].Devices[d]
			if dev.Speed > 0 {
				speed = min(speed, dev.Speed)
			}
			if rate >= 0 && dev.Type == last {
				continue
			}
			last = dev.Type
			if r := s.Rate(dev.Type, n, at); rate < 0 || r < rate {
				rate = r
			}
		}
	}
	return rate * speed
}
