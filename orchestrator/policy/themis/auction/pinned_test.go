package auction

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
)

var update = flag.Bool("update", false, "write testdata/pinned.txt")

// shape describes a kind of random auction.
type shape struct {
	name                     string
	auctions, machines, apps int
	rows                     int
	sizes                    []int   // sizes of pieces to choose from
	bound                    float64 // probability that a row names a node or a rack
	proportional             bool    // whether a row's worth is roughly proportional to its devices
}

func shapes() []shape {
	return []shape{
		{name: "small", auctions: 60, machines: 4, apps: 4, rows: 5, sizes: []int{1, 2, 3, 4}, bound: .3},
		{name: "sizes that divide", auctions: 12, machines: 8, apps: 24, rows: 10, sizes: []int{1, 2, 4, 8}},
		{name: "sizes that do not", auctions: 12, machines: 8, apps: 12, rows: 8, sizes: []int{2, 3, 5, 6}},
		{name: "bound", auctions: 12, machines: 10, apps: 14, rows: 8, sizes: []int{1, 2, 3, 4}, bound: .6},
		{name: "crowded", auctions: 6, machines: 2, apps: 40, rows: 6, sizes: []int{1, 2, 4, 8}, proportional: true},
		{name: "proportional", auctions: 6, machines: 6, apps: 10, rows: 16, sizes: []int{1, 2, 4}, proportional: true},
		{name: "many rows", auctions: 2, machines: 60, apps: 110, rows: 76, sizes: []int{1, 2, 4}, proportional: true},
		{name: "many bidders", auctions: 3, machines: 30, apps: 60, rows: 12, sizes: []int{1, 2, 4}, proportional: true},
	}
}

func (s shape) draw(r *rand.Rand) ([]bidder.Lot, []Bidder) {
	var lots []bidder.Lot
	for i := range s.machines/2 + r.IntN(s.machines/2+1) {
		lots = append(lots, bidder.Lot{
			Node: fmt.Sprint("n", i), Rack: fmt.Sprint("r", i%3), Type: []string{"a", "a", "b"}[r.IntN(3)], Free: 1 + r.IntN(8),
		})
	}
	bidders := make([]Bidder, 1+s.apps/2+r.IntN(s.apps/2+1))
	for i := range bidders {
		b := &bidders[i]
		work, power := 1+19*r.Float64(), .3+.7*r.Float64()
		b.Nothing = work * 3
		for n := range s.rows/2 + r.IntN(s.rows/2+1) {
			row := bidder.Row{Rho: work * (.1 + 4*r.Float64())}
			devices := 0
			kinds := 1 + r.IntN(2)
			if s.proportional {
				kinds = 1
			}
			for range kinds {
				g := bidder.Gangs{
					Count: 1 + r.IntN(2), Machines: 1 + r.IntN(2), Devices: s.sizes[r.IntN(len(s.sizes))],
					Type: []string{"a", "b"}[r.IntN(2)],
				}
				if s.proportional {
					g.Count, g.Machines = 1+n, 1
				}
				if r.Float64() < s.bound {
					switch k := r.IntN(len(lots)); r.IntN(2) {
					case 0:
						g.Node = lots[k].Node
					default:
						g.Rack = lots[k].Rack
					}
				}
				devices += g.Count * g.Machines * g.Devices
				row.Gangs = append(row.Gangs, g)
			}
			if s.proportional {
				row.Rho = work / math.Pow(float64(devices), power) * (1 + r.Float64()/100)
			}
			b.Rows = append(b.Rows, row)
		}
	}
	return lots, bidders
}

// stages writes the result after each stage of the solver. Every stage exists to save time, and an exhaustive search
// would hide its effect.
func stages(text *strings.Builder, lots []bidder.Lot, bidders []Bidder) {
	p := compile(lots, bidders, nil)
	s := newSolver(p)
	s.clearChoice()
	s.improve()
	s.recordBest()
	fmt.Fprintf(text, "  %d rows, %d uses, %d constraints; improved %.6f", len(p.worth), len(p.uses), len(p.room), s.worth)
	s.lowerBound(steps)
	prices, least := 0.0, int32(0)
	for c, price := range s.price {
		prices += price
		least = min(least, s.roomLeft[c])
	}
	fmt.Fprintf(text, ", lowered %.6f to %.6f at %.6f", s.worth, s.bound, prices)
	s.shake()
	fmt.Fprintf(text, ", shaken %.6f", s.worth)
	s.findNearest()
	near := 0
	for b := range s.near {
		for i, row := range s.near[b] {
			near += (i + 1) * (row - s.start[b] + 1)
		}
	}
	for _, effort := range []int{50, 500} {
		fmt.Fprintf(text, ", with %d", effort)
		exact := s.search(effort)
		fmt.Fprintf(text, " %.6f %t", s.worth, exact)
	}
	fmt.Fprintf(text, ", near %d, overdrawn %d\n", near, least)
}

// TestDecisionsArePinned compares the worth, the bound, and each bidder's part in random auctions of many kinds with
// a file. After an intended change write the file with -update; the sums at its end show whether it is an improvement.
func TestDecisionsArePinned(t *testing.T) {
	t.Parallel()
	const file = "testdata/pinned.txt"
	if runtime.GOARCH != "amd64" {
		t.Skip("other machines round otherwise")
	}
	var text strings.Builder
	for _, s := range shapes() {
		gained, exact, gaps := 0.0, 0, 0.0
		for i := range s.auctions {
			lots, bidders := s.draw(rand.New(rand.NewPCG(uint64(i), 7)))
			got := Run(lots, bidders)
			winners, keeps := 0, 0.0
			for b, row := range got.Rows {
				if row >= 0 {
					winners++
					keeps += got.Keeps[b]
				} else if got.Keeps[b] != 1 {
					t.Errorf("%s %d: bidder %d won nothing and keeps %v of it", s.name, i, b, got.Keeps[b])
				}
			}
			gained, gaps = gained+got.Log-got.Nothing, gaps+got.Gap()
			if got.Exact {
				exact++
			}
			stages(&text, lots, bidders)
			fmt.Fprintf(&text, "%s %d: gain %.6f of %.6f, exact %t, %d of %d win and keep %.5f\n", s.name, i, got.Log-got.Nothing,
				got.Bound-got.Nothing, got.Exact, winners, len(bidders), keeps)
		}
		fmt.Fprintf(&text, "%s: gain %.6f, exact %d of %d, gaps %.6f\n\n", s.name, gained, exact, s.auctions, gaps)
	}
	if *update {
		if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, []byte(text.String())) {
		t.Error(cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text.String(), "\n")))
	}
}
