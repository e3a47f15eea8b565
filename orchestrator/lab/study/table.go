package study

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Markdown returns the tables of the results: the mean over seeds, and half of its 95 % interval by the t distribution.
func (s *Study) Markdown(got Results, liar func(seed uint64, sweep string, part float64) bool) string {
	var b strings.Builder
	for i := range s.Tables {
		t := &s.Tables[i]
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "**%s** (%s)\n\n", t.Name, strings.Join(append([]string{t.Made}, append(t.Options, "on "+t.Cluster)...), " "))
		if t.Lies {
			s.lies(&b, t, got, liar)
		} else {
			s.table(&b, t, got)
		}
	}
	return b.String()
}

// columns returns those of a table, or the columns of fairness.
func (t *Table) columns() []Column {
	if t.Columns != nil {
		return t.Columns
	}
	return []Column{
		{"max rho", "rho_max", 1, true},
		{"mean rho", "rho_mean", 1, false},
		{"apps > 1", "si_violations", 1, false},
		{"weighted rho", "rho_weighted", 1, false},
		{"its bound", "rho_bound", 1, false},
		{"worst against alone", "alone_slowdown_max", 1, false},
		{"mean", "alone_slowdown_mean", 1, false},
		{"apps > 1", "alone_violations", 1, false},
		{"mean JCT, h", "jct_mean_s", 3600, false},
		{"device-days", "gpu_seconds", 86400, false},
		{"preemptions", "preemptions", 1, false},
	}
}

func (s *Study) table(b *strings.Builder, t *Table, got Results) {
	b.WriteString("| policy |")
	rule := "|---|"
	for _, c := range t.columns() {
		fmt.Fprintf(b, " %s |", c.Head)
		rule += "---|"
		if c.Ratio {
			b.WriteString(" over the first |")
			rule += "---|"
		}
	}
	fmt.Fprintf(b, "\n%s\n", rule)
	for _, r := range t.Rows {
		seeds, lines := s.lines(t, r, got)
		if len(lines) == 0 {
			fmt.Fprintf(b, "| `%s` | not run |\n", r.Name())
			continue
		}
		name := "`" + r.Name() + "`"
		if len(lines) < len(s.seeds(t)) {
			name += fmt.Sprintf(" (%d seeds)", len(lines))
		}
		fmt.Fprintf(b, "| %s |", name)
		for _, c := range t.columns() {
			fmt.Fprintf(b, " %s |", Of(figure(lines, c.Figure, cmp.Or(c.Over, 1))))
			if c.Ratio {
				fmt.Fprintf(b, " %s |", Of(s.ratios(t, c.Figure, seeds, lines, got)))
			}
		}
		b.WriteByte('\n')
	}
}

// lines returns the lines of a row, by seed.
func (s *Study) lines(t *Table, r Row, got Results) (seeds []uint64, lines []*Line) {
	for _, seed := range s.seeds(t) {
		if l := got[key{t.Name, r.Name(), s.settings(t), seed}]; l != nil {
			seeds, lines = append(seeds, seed), append(lines, l)
		}
	}
	return seeds, lines
}

func figure(lines []*Line, name string, over float64) []float64 {
	values := make([]float64, len(lines))
	for i, l := range lines {
		values[i] = l.Figures[name] / over
	}
	return values
}

// ratios returns a row's figure relative to that of the table's first row, seed by seed.
func (s *Study) ratios(t *Table, name string, seeds []uint64, lines []*Line, got Results) []float64 {
	var values []float64
	for i, l := range lines {
		if first := got[key{t.Name, t.Rows[0].Name(), s.settings(t), seeds[i]}]; first != nil && first.Figures[name] > 0 {
			values = append(values, l.Figures[name]/first.Figures[name])
		}
	}
	return values
}

// lies compares the times of liars, and of the other apps, with those when all report the truth.
func (s *Study) lies(b *strings.Builder, t *Table, got Results, liar func(seed uint64, sweep string, part float64) bool) {
	b.WriteString("| policy | liars' time over the same apps' telling the truth | the others' | max rho |\n|---|---|---|---|\n")
	for _, r := range t.Rows[1:] {
		part := 0.0
		for _, o := range r.Options {
			if value, ok := strings.CutPrefix(o, "liars="); ok {
				_, _ = fmt.Sscan(value, &part)
			}
		}
		var own, others []float64
		seeds, lines := s.lines(t, r, got)
		for i, l := range lines {
			truth := got[key{t.Name, t.Rows[0].Name(), s.settings(t), seeds[i]}]
			if truth == nil {
				continue
			}
			lied, told := []float64{}, []float64{}
			for sweep, took := range l.Shared {
				if before := truth.Shared[sweep]; before > 0 && liar(seeds[i], sweep, part) {
					lied = append(lied, took/before)
				} else if before > 0 {
					told = append(told, took/before)
				}
			}
			own, others = appendMean(own, lied), appendMean(others, told)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", r.Name(), Of(own), Of(others), Of(figure(lines, "rho_max", 1)))
	}
}

// appendMean appends the mean of some values, if there are any. It sorts them so that the sum does not depend on their
// order.
func appendMean(to, values []float64) []float64 {
	if len(values) == 0 {
		return to
	}
	slices.Sort(values)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return append(to, sum/float64(len(values)))
}

// Interval is a mean and half of its 95 % interval.
type Interval struct {
	Mean, Half float64
	N          int
}

// Of returns the interval of the mean of some values.
func Of(values []float64) Interval {
	i := Interval{N: len(values)}
	if i.N == 0 {
		return i
	}
	for _, v := range values {
		i.Mean += v / float64(i.N)
	}
	if i.N == 1 {
		return i
	}
	squares := 0.0
	for _, v := range values {
		squares += (v - i.Mean) * (v - i.Mean)
	}
	i.Half = student(i.N-1) * math.Sqrt(squares/float64(i.N-1)/float64(i.N))
	return i
}

// student returns the 97.5 % quantile of the t distribution.
func student(freedom int) float64 {
	table := []float64{
		12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110,
		2.101, 2.093, 2.086,
	}
	return table[min(freedom, len(table))-1]
}

// String returns the mean and half of its interval, with three digits.
func (i Interval) String() string {
	switch i.N {
	case 0:
		return ""
	case 1:
		return digits(i.Mean)
	default:
		return digits(i.Mean) + " ± " + digits(i.Half)
	}
}

func digits(v float64) string {
	switch size := math.Abs(v); {
	case size >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case size >= 9.995:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
