package population

import "math"

// The worths are tabulated over grids of means of qualities, bars, and prices of a full training.
const (
	leastMean, meanStep, means = -4.0, 0.2, 41
	leastBar, barStep, bars    = -1.0, 0.5, 11
	leastPrice, dearer, prices = 1e-3, 1.36, 36
)

// A GittinsIndex holds the worth of further training by the mean quality: the highest price of a full training that is
// still worth paying for its steps, if ending above a bar pays 1 and training may be stopped at each look. This is the
// Gittins index (Gittins, "Bandit Processes and Dynamic Allocation Indices", 1979) of a curve under a correlation
// model. It is a probability for each full training, and accounts for the low cost of stopping a bad curve early.
// Tables are computed when they are first used.
type GittinsIndex struct {
	looks   []int64
	courses []laid
	// tables is indexed by correlation model, bar, number of looks passed, and mean of the quality.
	tables [][bars][][]float64
}

// NewGittinsIndex returns the index of curves with the given looks; the last one is the end.
func NewGittinsIndex(looks []int64) *GittinsIndex {
	w := &GittinsIndex{looks: looks}
	for _, c := range CorrelationModels() {
		w.courses = append(w.courses, lay(&c, looks))
	}
	w.tables = make([][bars][][]float64, len(w.courses))
	return w
}

// at returns the worth of a curve's training under a correlation model, after a number of looks, given the mean of its
// quality.
func (w *GittinsIndex) at(course, passed int, mean, bar float64) float64 {
	i, f := knot(bar, leastBar, barStep, bars)
	j, g := knot(mean, leastMean, meanStep, means)
	low, high := w.table(course, i)[passed], w.table(course, i+1)[passed]
	return (1-f)*((1-g)*low[j]+g*low[j+1]) + f*((1-g)*high[j]+g*high[j+1])
}

// knot returns the knot of a grid at or below a value, and the fraction of the distance to the next knot.
func knot(v, least, step float64, knots int) (int, float64) {
	at := min(max((v-least)/step, 0), float64(knots-1))
	i := min(int(at), knots-2)
	return i, at - float64(i)
}

func (w *GittinsIndex) table(course, bar int) [][]float64 {
	if w.tables[course][bar] == nil {
		w.tables[course][bar] = w.price(&w.courses[course], leastBar+barStep*float64(bar))
	}
	return w.tables[course][bar]
}

// A move is a transition of the mean quality from one look to the next: to a knot, with a weight.
type move struct {
	to     int
	weight float64
}

// price computes the worths for a correlation model and a bar from the gain of training at increasing prices.
func (w *GittinsIndex) price(c *laid, bar float64) [][]float64 {
	last := len(w.looks) - 1
	worth, before := make([][]float64, last+1), make([][]float64, last+1)
	for k := range worth {
		worth[k], before[k] = make([]float64, means), make([]float64, means)
	}
	wins, moves := w.wins(c, bar), w.moves(c)
	now := make([][]float64, last+1)
	for n, price := 0, leastPrice; n < prices; n, price = n+1, price*dearer {
		for k := last; k >= 0; k-- {
			now[k] = make([]float64, means)
			cost := price * w.trainingPart(k)
			for j := range means {
				gain := wins[j]
				if k < last {
					gain = 0
					for _, m := range moves[k][j] {
						gain += m.weight * max(0, now[k+1][m.to])
					}
				}
				gain -= cost
				now[k][j] = gain
				switch {
				case gain > 0:
					worth[k][j] = price
				case before[k][j] > 0: // the worth is a price between the previous one and this one
					worth[k][j] *= 1 + (dearer-1)*before[k][j]/(before[k][j]-gain)
				}
				before[k][j] = gain
			}
		}
	}
	return worth
}

// trainingPart returns the part of a full training between look k-1 and look k.
func (w *GittinsIndex) trainingPart(k int) float64 {
	steps := w.looks[k]
	if k > 0 {
		steps -= w.looks[k-1]
	}
	return float64(steps) / float64(w.looks[len(w.looks)-1])
}

// wins returns the probabilities of ending above a bar after all looks except the last, by the mean of the quality.
func (w *GittinsIndex) wins(c *laid, bar float64) []float64 {
	told := 0.0
	if n := len(c.told); n > 0 {
		told = c.told[n-1]
	}
	spread, chances := math.Sqrt(1-told*told), make([]float64, means)
	for j := range chances {
		for _, n := range nodes() {
			chances[j] += n.weight * below((c.end(leastMean+meanStep*float64(j)+spread*n.at)-bar)/c.luck)
		}
	}
	return chances
}

// moves returns the transitions of the mean from each look to the next. The mean moves by the additional information of
// the look.
func (w *GittinsIndex) moves(c *laid) [][][]move {
	moves := make([][][]move, len(c.told))
	before := 0.0
	for k, told := range c.told {
		spread := math.Sqrt(told*told - before*before)
		before = told
		moves[k] = make([][]move, means)
		for j := range means {
			for _, n := range nodes() {
				to, f := knot(leastMean+meanStep*float64(j)+spread*n.at, leastMean, meanStep, means)
				moves[k][j] = append(moves[k][j], move{to, n.weight * (1 - f)}, move{to + 1, n.weight * f})
			}
		}
	}
	return moves
}
