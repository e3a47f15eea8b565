package population

import "math"

// The grids that worths are laid over: means of qualities, bars, and prices of a whole training.
const (
	leastMean, meanStep, means = -4.0, 0.2, 41
	leastBar, barStep, bars    = -1.0, 0.5, 11
	leastPrice, dearer, prices = 1e-3, 1.36, 36
)

// Worths hold what training a curve on is worth, by where it stands: the highest price of a whole training at which steps of it still
// pay, if to end above a bar pays one and training may be given up at each look. This is Gittins's index (Gittins, "Bandit Processes and Dynamic
// Allocation Indices", 1979) of a curve whose quality is told of as a course says. It is a chance per training, and knows that what begins badly
// costs little. They are made as they are asked for.
type Worths struct {
	looks   []int64
	courses []laid
	// tables are of a course and a bar: by how many looks were passed, and the mean of the quality.
	tables [][bars][][]float64
}

// NewWorths are worths of curves with the given looks, of which the last is the end.
func NewWorths(looks []int64) *Worths {
	w := &Worths{looks: looks}
	for _, c := range Courses() {
		w.courses = append(w.courses, lay(&c, looks))
	}
	w.tables = make([][bars][][]float64, len(w.courses))
	return w
}

// of is what a curve's training is worth under a course, after so many looks, with a mean of its quality.
func (w *Worths) of(course, passed int, mean, bar float64) float64 {
	i, f := knot(bar, leastBar, barStep, bars)
	j, g := knot(mean, leastMean, meanStep, means)
	low, high := w.table(course, i)[passed], w.table(course, i+1)[passed]
	return (1-f)*((1-g)*low[j]+g*low[j+1]) + f*((1-g)*high[j]+g*high[j+1])
}

// knot is the knot of a grid at or below a value, and how far on to the next it lies.
func knot(v, least, step float64, knots int) (int, float64) {
	at := min(max((v-least)/step, 0), float64(knots-1))
	i := min(int(at), knots-2)
	return i, at - float64(i)
}

func (w *Worths) table(course, bar int) [][]float64 {
	if w.tables[course][bar] == nil {
		w.tables[course][bar] = w.price(&w.courses[course], leastBar+barStep*float64(bar))
	}
	return w.tables[course][bar]
}

// A move is how the mean of a quality moves from look to look: to knots, with weights.
type move struct {
	to     int
	weight float64
}

// price finds the worths of a course and a bar, by what training gains at each of a row of prices.
func (w *Worths) price(c *laid, bar float64) [][]float64 {
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
			cost := price * w.part(k)
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
				case before[k][j] > 0: // it is worth a price between the one before and this one
					worth[k][j] *= 1 + (dearer-1)*before[k][j]/(before[k][j]-gain)
				}
				before[k][j] = gain
			}
		}
	}
	return worth
}

// part is the part of a training from the k-th look before to the next.
func (w *Worths) part(k int) float64 {
	steps := w.looks[k]
	if k > 0 {
		steps -= w.looks[k-1]
	}
	return float64(steps) / float64(w.looks[len(w.looks)-1])
}

// wins are the chances to end above a bar after all looks but the last, by the mean of the quality.
func (w *Worths) wins(c *laid, bar float64) []float64 {
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

// moves are how means move from each look to the next, by where they are. What a look tells more, the mean moves by.
func (w *Worths) moves(c *laid) [][][]move {
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
