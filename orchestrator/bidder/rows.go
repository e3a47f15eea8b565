package bidder

import (
	"cmp"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// bidder lists the subsets that one sweep bids for. Rows grow by devices: first a gang of the least size for one more
// trial, until all have one, then larger gangs, the longest trial's first. A table has only some of the possible
// rows: all small ones, and larger ones in geometric progression.
type bidder struct {
	*estimator
	wants []want
	work  typePool
	rows  []Row
	fast  []float64
	// rate is the speed that was looked up last, for the key known.
	known pace
	rate  float64
	// room is how many gangs its trials can use in total: one each, or one for each possible fork.
	room int
}

// pace is the key of a speed.
type pace struct {
	kind   string
	size   int
	spread cluster.Locality
}

// want is a trial that could use a gang.
type want struct {
	min, max int
	spread   bool
	left     float64
	job      *Job
	// forks is how many gangs it can use, each on a different machine.
	forks int
}

// portion is a part of a row: gangs of one type.
type portion struct {
	jobs   int
	gangs  []Gangs
	speeds []float64
}

// order says which shapes of a gang are tried first.
type order int

const (
	consolidated order = iota
	halved
	scattered
	orders
)

func bid(m *offerIndex, s *AppState) Table {
	b := &bidder{estimator: newEstimator(s, false)}
	t := Table{Rho: b.rho(nil), Ideal: b.ideal}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if j.Held.Devices == 0 && !j.Leaving {
			least := max(1, j.Min)
			forks := forksOf(s, j.Forks, j.LeastForks)
			b.room += forks
			b.wants = append(b.wants, want{least, max(least, j.Max), j.MultiNode, max(j.Total, j.Until) - j.Done, j, forks})
		}
	}
	if len(b.wants) == 0 {
		return t
	}
	slices.SortStableFunc(b.wants, func(a, b want) int { return cmp.Compare(b.left, a.left) })
	b.list(m)
	for _, r := range b.rows {
		if r.Rho < t.Rho {
			t.Rows = append(t.Rows, r)
		}
	}
	return t
}

// list creates the rows: all combinations of a few portions of every type, then finer portions and worse shapes while
// there is room.
func (b *bidder) list(m *offerIndex) {
	var pools []*typePool
	for i := range m.types {
		if slices.ContainsFunc(b.wants, func(w want) bool { return w.accepts(m.types[i].kind) }) {
			pools = append(pools, &m.types[i])
		}
	}
	rate := func(s *typePool) float64 { return b.w.pace.Rate(s.kind, b.wants[0].min, cluster.SameMachine) }
	slices.SortStableFunc(pools, func(x, y *typePool) int { return cmp.Compare(rate(y), rate(x)) })
	pools = pools[:min(len(pools), 6)]
	if len(pools) > 1 {
		// n portions or none of every type: (n+1)^types - 1 rows.
		n := int(math.Pow(MaxRows*3/4, 1/float64(len(pools)))) - 1
		parts := make([][]portion, len(pools))
		for i, s := range pools {
			parts[i] = b.portions(s, b.growth(s), max(1, n), consolidated)
		}
		b.combine(parts, nil)
	}
	for _, o := range [...]order{consolidated, halved, scattered} {
		for i, s := range pools {
			room := (MaxRows - len(b.rows)) / (len(pools) - i)
			if o < orders-1 && b.wants[0].spread && b.wants[0].max > 1 {
				room = (room + 1) / 2
			}
			if room == 0 {
				continue
			}
			chain := b.growth(s)
			if o != consolidated {
				chain = b.chain(s)
			}
			for _, p := range b.portions(s, chain, room, o) {
				b.add([]portion{p})
			}
		}
	}
}

func (w *want) accepts(kind string) bool {
	return cluster.Demand{Types: w.job.Types, Exclude: w.job.Exclude}.Accepts(kind)
}

// combine adds every choice of at most one portion of each type with at most as many gangs as the trials can use.
func (b *bidder) combine(parts [][]portion, chosen []portion) {
	if len(parts) == 0 {
		if len(chosen) > 0 {
			b.add(chosen)
		}
		return
	}
	b.combine(parts[1:], chosen)
	jobs := 0
	for i := range chosen {
		jobs += chosen[i].jobs
	}
	for _, p := range parts[0] {
		if jobs+p.jobs <= b.room {
			b.combine(parts[1:], append(chosen[:len(chosen):len(chosen)], p))
		}
	}
}

func (b *bidder) add(parts []portion) {
	if len(b.rows) >= MaxRows {
		return
	}
	var gangs []Gangs
	b.fast = b.fast[:0]
	for i := range parts {
		gangs = append(gangs, parts[i].gangs...)
		b.fast = append(b.fast, parts[i].speeds...)
	}
	if more := len(b.held) + len(b.fast); len(b.fast) > len(b.wants) && !b.w.forked(more) {
		return // no trial has enough gangs to be forked
	}
	if slices.ContainsFunc(b.rows, func(r Row) bool { return slices.Equal(r.Gangs, gangs) }) {
		return
	}
	slices.SortFunc(b.fast, func(a, b float64) int { return cmp.Compare(b, a) })
	b.rows = append(b.rows, Row{Gangs: gangs, Rho: b.rho(b.fast)})
}

// portions lists up to n portions of a type, the smallest first.
func (b *bidder) portions(s *typePool, sizes []step, n int, o order) []portion {
	var out []portion
	for _, p := range grid(len(sizes), n) {
		if got, ok := b.cut(s, sizes[:p], o); ok {
			out = append(out, got)
		} else {
			break
		}
	}
	return out
}

// step is the growth of one gang in a chain from one size, 0 for a new gang, to another.
type step struct{ from, to int }

// growth returns how a portion grows: with forks if trials may have them, because then there can be more gangs than
// trials.
func (b *bidder) growth(s *typePool) []step {
	if b.room > len(b.wants) {
		if forks := b.forks(s); len(forks) > 0 {
			return forks
		}
	}
	return b.chain(s)
}

// forks returns how a portion grows gang by gang: for the longest trial, for the others, then for further forks. The
// forks of a trial are on different machines, so a machine has at most as many gangs as there are trials. Gangs have
// the largest size of the longest trial if there is room for one for each trial, otherwise the smallest.
func (b *bidder) forks(s *typePool) []step {
	var able []want
	room := 0
	for i := range b.wants {
		if w := &b.wants[i]; w.accepts(s.kind) {
			able, room = append(able, *w), room+w.forks
		}
	}
	if len(able) == 0 {
		return nil
	}
	size := able[0].max
	if s.pieces(size, len(able)) < len(able) {
		size = able[0].min
	}
	steps := make([]step, min(room, s.pieces(size, len(able))))
	for i := range steps {
		steps[i] = step{0, size}
	}
	return steps
}

// chain returns how a portion grows without forks. All gangs have the least size until every trial has one; then they
// are doubled, up to the largest size of the trials.
func (b *bidder) chain(s *typePool) []step {
	var steps []step
	devices := 0
	fits := func(from, to int) bool {
		devices += to - from
		return devices <= s.free
	}
	var able []want
	for i := range b.wants {
		w := &b.wants[i]
		if !w.accepts(s.kind) {
			continue
		}
		if !fits(0, w.min) {
			return steps
		}
		steps = append(steps, step{0, w.min})
		able = append(able, *w)
	}
	for grown := true; grown; {
		grown = false
		for i := range able {
			w := &able[i]
			to := min(2*w.min, w.max)
			if to == w.min {
				continue
			}
			if !fits(w.min, to) {
				return steps
			}
			steps = append(steps, step{w.min, to})
			w.min, grown = to, true
		}
	}
	return steps
}

// grid chooses at most n of the lengths 1 to all of a chain: all of them if they are few, otherwise the small ones,
// then in geometric progression, and always the whole length.
func grid(all, n int) []int {
	if all <= n {
		out := make([]int, all)
		for i := range out {
			out[i] = i + 1
		}
		return out
	}
	if n <= 1 {
		return []int{all}[:n]
	}
	for ratio := 1.05; ; ratio *= 1.1 {
		var out []int
		for at := 1.0; int(at) < all; at = max(at+1, at*ratio) {
			out = append(out, int(at))
		}
		if len(out) < n {
			return append(out, all)
		}
	}
}

// cut fits the gangs that result from some steps into the offer of a type.
func (b *bidder) cut(s *typePool, steps []step, o order) (portion, bool) {
	var sizes []int
	var counts []int
	count := func(size, by int) {
		i := slices.Index(sizes, size)
		if i < 0 {
			i = len(sizes)
			sizes, counts = append(sizes, size), append(counts, 0)
		}
		counts[i] += by
	}
	p := portion{speeds: make([]float64, 0, len(steps)), gangs: make([]Gangs, 0, 2)}
	for _, st := range steps {
		if st.from == 0 {
			p.jobs++
		} else {
			count(st.from, -1)
		}
		count(st.to, 1)
	}
	s.copyTo(&b.work)
	for {
		// The largest first: if sizes divide each other, they then fit whenever possible.
		big := -1
		for i := range sizes {
			if counts[i] > 0 && (big < 0 || sizes[i] > sizes[big]) {
				big = i
			}
		}
		if big < 0 {
			return p, true
		}
		if !b.shape(&p, sizes[big], counts[big], o) {
			return p, false
		}
		counts[big] = 0
	}
}

// shape cuts gangs of one size, trying shapes in the given order.
func (b *bidder) shape(p *portion, size, count int, o order) bool {
	splits := []int{1}
	if b.wants[0].spread && size > 1 {
		for m := 2; m < size; m *= 2 {
			if size%m == 0 {
				splits = append(splits, m)
			}
		}
		splits = append(splits, size)
		switch o {
		case halved:
			splits = append(splits[1:], 1)
		case scattered:
			slices.Reverse(splits)
		}
	}
	for _, machines := range splits {
		for _, together := range [...]bool{true, false} {
			if machines == 1 && together {
				continue
			}
			for count > 0 {
				rack, ok := b.work.takePieces(machines, size/machines, together)
				if !ok {
					break
				}
				b.grant(p, size, machines, rack, together)
				count--
			}
		}
	}
	return count == 0
}

// grant adds a gang to a portion.
func (b *bidder) grant(p *portion, size, machines int, rack string, together bool) {
	spread := cluster.SameMachine
	switch {
	case machines == 1 && size <= b.work.slot:
		spread = cluster.SameSlot
	case machines > 1 && (together || len(b.work.racks) == 1):
		spread = cluster.SameRack
	case machines > 1:
		spread = cluster.AcrossRacks
	}
	if len(b.work.racks) == 1 {
		rack = ""
	}
	g := Gangs{Count: 1, Machines: machines, Devices: size / machines, Type: b.work.kind, Rack: rack}
	asked := pace{g.Type, size, spread}
	if b.known != asked {
		b.known, b.rate = asked, b.w.pace.Rate(g.Type, size, spread)
	}
	p.speeds = append(p.speeds, b.rate)
	if n := len(p.gangs); n > 0 {
		last := p.gangs[n-1]
		last.Count = 1
		if last == g {
			p.gangs[n-1].Count++
			return
		}
	}
	p.gangs = append(p.gangs, g)
}
