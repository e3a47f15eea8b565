package slots

import (
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outbid-dev/outbid/orchestrator/policy/ogasched/ascent"
)

var (
	tables = flag.String("tables", "", "run all of docs/research/ogasched.md and write its tables into this file")
	only   = flag.String("only", "", "only the tables with this in their title")
)

// seeds of the comparison, used in no earlier run, and the 97.5th percentile of Student's t for five of them.
const (
	firstSeed, seeds = 100, 5
	student          = 2.776
)

// TestTables runs the comparison of docs/research/ogasched.md.
func TestTables(t *testing.T) { //nolint:paralleltest // it measures for minutes
	if *tables == "" {
		t.Skip("runs for minutes: give -tables FILE")
	}
	var b strings.Builder
	write := func(title string, made func() string) {
		t.Helper()
		if !strings.Contains(title, *only) {
			return
		}
		began := time.Now()
		b.WriteString("**" + title + "**\n\n" + made() + "\n")
		t.Logf("%s: %s", title, time.Since(began).Round(time.Second))
		if err := os.WriteFile(*tables, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rewards := func(columns []column) func() string {
		return func() string { return table(t, columns, seeds) }
	}
	write("Default setting, 8,000 slots", rewards([]column{{"average reward", Default()}}))
	write("Regret, default setting", func() string { return regretTable(t) })
	write("Slots", rewards(vary(func(s *Settings, x float64) { s.Horizon = int(x) }, 1000, 2000, 5000, 10_000)))
	write("Chance of a job", rewards(vary(func(s *Settings, x float64) { s.Chance = x }, 0.3, 0.5, 0.7, 0.9)))
	write("Ports of an instance", rewards(vary(func(s *Settings, x float64) { s.Density = x }, 2, 2.5, 3, 10)))
	write("Contention", rewards(vary(func(s *Settings, x float64) { s.Contention = x }, 0.1, 1, 5, 10, 20)))
	var utilities []column
	for i, name := range []string{"linear", "log", "reciprocal", "poly"} {
		s := Default()
		s.Horizon, s.Utilities = 2000, []ascent.Utility{ascent.Utility(i)}
		utilities = append(utilities, column{name, s})
	}
	write("Utilities", rewards(utilities))
	large := Default()
	large.Ports, large.Instances, large.Horizon, large.Contention, large.Beta = 100, 1024, 10_000, 5, [2]float64{0.01, 0.015}
	write("100 ports, 1,024 instances, 10,000 slots, one seed", func() string {
		return table(t, []column{{"average reward", large}}, 1)
	})
}

// column is a setting and its name.
type column struct {
	name string
	s    Settings
}

// vary returns the default setting with 2,000 slots, once for each value of one parameter.
func vary(set func(*Settings, float64), values ...float64) []column {
	var columns []column
	for _, x := range values {
		s := Default()
		s.Horizon = 2000
		set(&s, x)
		columns = append(columns, column{fmt.Sprintf("%g", x), s})
	}
	return columns
}

// table has a row for each policy: the average reward in each column, and by how much OGASched's exceeds it, each as
// the mean over the seeds and half of the 95 % interval (0 for a single seed).
func table(t *testing.T, columns []column, seeds int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| policy |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s | OGASched's lead |", c.name)
	}
	b.WriteString("\n|---" + strings.Repeat("|---|---", len(columns)) + "|\n")
	first := make([][]float64, len(columns))
	for _, name := range Names() {
		b.WriteString("| " + name + " |")
		for i, c := range columns {
			got := averages(t, c.s, name, seeds)
			if first[i] == nil {
				first[i] = got
			}
			lead := make([]float64, len(got))
			for j := range got {
				lead[j] = 100 * (first[i][j]/got[j] - 1)
			}
			mean, half := interval(got)
			fmt.Fprintf(&b, " %.0f ± %.0f |", mean, half)
			mean, half = interval(lead)
			fmt.Fprintf(&b, " %+.1f ± %.1f %% |", mean, half)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// averages returns the average rewards of a policy by seed. It uses two cores.
func averages(t *testing.T, s Settings, name string, seeds int) []float64 {
	t.Helper()
	got := make([]float64, seeds)
	var group errgroup.Group
	group.SetLimit(2)
	for i := range got {
		group.Go(func() error {
			result, err := Run(s, name, uint64(firstSeed+i))
			got[i] = result.Average
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return got
}

func interval(x []float64) (mean, half float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		half += (v - mean) * (v - mean) / float64(max(1, len(x)-1))
	}
	return mean, student * math.Sqrt(half/float64(len(x)))
}

// regretTable returns the regret of both rates over horizons, and over the root of the horizon.
func regretTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| policy | slots | regret, at least | at most | over the root of the slots | the theorem's bound |\n|---|---|---|---|---|---|\n")
	for _, name := range Names()[:2] {
		for _, horizon := range []int{500, 1000, 2000, 4000, 8000} {
			s := Default()
			s.Horizon = horizon
			regrets := make([]Regret, seeds)
			var group errgroup.Group
			group.SetLimit(2)
			for i := range regrets {
				group.Go(func() error {
					result, err := Run(s, name, uint64(firstSeed+i), horizon)
					if err == nil {
						regrets[i] = result.Regret[0]
					}
					return err
				})
			}
			if err := group.Wait(); err != nil {
				t.Fatal(err)
			}
			var least, most, root, bound []float64
			for _, r := range regrets {
				least, most, bound = append(least, r.Least), append(most, r.Most), append(bound, r.Theorem)
				root = append(root, r.Most/math.Sqrt(float64(horizon)))
			}
			fmt.Fprintf(&b, "| %s | %d |", name, horizon)
			for _, x := range [][]float64{least, most, root} {
				mean, half := interval(x)
				fmt.Fprintf(&b, " %.0f ± %.0f |", mean, half)
			}
			mean, _ := interval(bound)
			fmt.Fprintf(&b, " %.0f |\n", mean)
		}
	}
	return b.String()
}
