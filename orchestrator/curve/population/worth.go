package population

// prices are how many prices of a step are tried to find what it is worth, each cheaper than the one before.
const (
	prices  = 20
	cheaper = 1.7
)

// A Worth holds what a step of a curve is worth, by where it stands: the highest price of a step at which training it on still pays, if to get below a place
// pays one and training may be given up at each look. This is Gittins's index (Gittins, "Bandit Processes and Dynamic Allocation Indices", 1979) of
// a curve that moves as the ladder says. It is a chance per step, and knows that what begins badly costs little.
type Worth struct {
	hit *Hit
	// from[k][i] is of a curve at place i of look k, and fresh of one that is not begun.
	from  [][]float64
	fresh float64
}

// Worth is of curves that are to get below what a hit says, at looks at the given steps. The hit is by the last of them.
func (h *Hit) Worth(looks []int64) *Worth {
	w := &Worth{hit: h, from: make([][]float64, len(looks))}
	for k := range w.from {
		w.from[k] = make([]float64, rungsOf)
	}
	least := looks[0]
	for k := range looks[1:] {
		least = min(least, looks[k+1]-looks[k])
	}
	price := 1 / float64(least)
	var before *gains
	for range prices {
		now := h.gains(price, looks)
		for k, row := range now.from {
			for i, gain := range row {
				if w.from[k][i] == 0 && gain > 0 {
					w.from[k][i] = price * between(gain, before, func(g *gains) float64 { return g.from[k][i] })
				}
			}
		}
		if w.fresh == 0 && now.fresh > 0 {
			w.fresh = price * between(now.fresh, before, func(g *gains) float64 { return g.fresh })
		}
		before, price = now, price/cheaper
	}
	return w
}

// between is how many times a price steps are worth that gain something at it, and lost something at the dearer one before.
func between(gain float64, before *gains, of func(*gains) float64) float64 {
	if before == nil {
		return 1
	}
	return 1 + (cheaper-1)*gain/(gain-of(before))
}

// gains are what training curves on by one look gains at a price, and after that as far as it pays; below 0 where it does not.
type gains struct {
	from  [][]float64
	fresh float64
}

func (h *Hit) gains(price float64, looks []int64) *gains {
	last := len(looks) - 1
	g := &gains{from: make([][]float64, last+1)}
	g.from[last] = make([]float64, rungsOf)
	// arrive is what it gains to come to a place at a look.
	arrive := func(k int, z float64) float64 {
		now := h.now(z)
		i, f := rung(z)
		return now + (1-now)*(max(0, g.from[k][i])*(1-f)+max(0, g.from[k][i+1])*f)
	}
	arrives := make([]float64, rungsOf+2*farthest)
	for k := last - 1; k >= 0; k-- {
		g.from[k] = make([]float64, rungsOf)
		for m := range arrives {
			arrives[m] = arrive(k+1, place(m-farthest))
		}
		for i := range rungsOf {
			sum := -price * float64(looks[k+1]-looks[k])
			for d, p := range h.ladder.moves[k][i] {
				sum += p * arrives[i+d]
			}
			g.from[k][i] = sum
		}
	}
	g.fresh = -price * float64(looks[0])
	for i, p := range h.ladder.start {
		g.fresh += p * arrive(0, place(i))
	}
	return g
}

// at is what a step is worth of a curve that stands at a place at a look, or of one not begun if look is below 0.
func (w *Worth) at(look int, z float64) float64 {
	if look < 0 {
		return w.fresh
	}
	i, f := rung(z)
	return w.from[look][i]*(1-f) + w.from[look][i+1]*f
}

// mostLeaned bounds how many times as much a step is worth for what is known of its configuration.
const mostLeaned = 20

// Worth is what the path's steps are worth: what the ladder says, as many times as its chance is what the ladder says of that.
func (p *Path) Worth(w *Worth) float64 {
	plain := w.hit.Chance(p.From-1, p.newest)
	if plain <= 0 {
		return 0
	}
	return w.at(p.From-1, p.newest) * min(p.Chance(w.hit)/plain, mostLeaned)
}
