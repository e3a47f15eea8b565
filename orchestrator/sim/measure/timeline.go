package measure

import "math"

// maxBins is the maximum number of points of utilisation over time; with more, neighbours are merged.
const maxBins = 2048

// timeline holds the device time used and present, in bins of equal width that increases with the run.
type timeline struct {
	width       float64
	used, there []float64
}

// firstWidth is the initial width of a bin in seconds.
const firstWidth = 10

func newTimeline() timeline { return timeline{width: firstWidth} }

// add distributes constant numbers of devices over the bins between two times.
func (l *timeline) add(from, to, used, there float64) {
	for to >= l.width*maxBins {
		l.coarsen()
	}
	last := int(to / l.width)
	for len(l.used) <= last {
		l.used = append(l.used, 0)
		l.there = append(l.there, 0)
	}
	for bin := int(from / l.width); bin <= last; bin++ {
		start, end := float64(bin)*l.width, float64(bin+1)*l.width
		if dt := math.Min(end, to) - math.Max(start, from); dt > 0 {
			l.used[bin] += used * dt
			l.there[bin] += there * dt
		}
	}
}

func (l *timeline) coarsen() {
	for i := range l.used {
		if i%2 == 0 {
			l.used[i/2], l.there[i/2] = l.used[i], l.there[i]
			continue
		}
		l.used[i/2] += l.used[i]
		l.there[i/2] += l.there[i]
	}
	half := (len(l.used) + 1) / 2
	l.used, l.there, l.width = l.used[:half], l.there[:half], 2*l.width
}

// Point is a value at a time in seconds.
type Point struct {
	At, Value float64
}

// points returns the utilisation over time, each point at the middle of its bin, without bins that have no devices.
func (l *timeline) points() []Point {
	var out []Point
	for i := range l.used {
		if l.there[i] > 0 {
			out = append(out, Point{At: (float64(i) + .5) * l.width, Value: l.used[i] / l.there[i]})
		}
	}
	return out
}

// Bar is a lease in a Gantt chart.
type Bar struct {
	Job, App   string
	Devices    []int
	From, Till float64
}

// bar records a lease that ends now.
func (m *Meter) bar(j *job, h *held) {
	if len(h.Where) == 0 || m.now <= h.since {
		return
	}
	if len(m.bars) >= m.cfg.Bars {
		m.barsLeftOut++
		return
	}
	m.bars = append(m.bars, Bar{
		Job: j.name, App: m.apps[j.app].Name, Devices: h.Where, From: h.since, Till: m.now,
	})
}
