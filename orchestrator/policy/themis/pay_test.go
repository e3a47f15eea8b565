package themis

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
)

// A sweep keeps its part of the row's devices in expectation, never more than the row, and no gang smaller than its
// trials need.
func TestPaymentsAreExactInExpectation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		least := rapid.IntRange(1, 4).Draw(t, "least")
		var row []bidder.Gangs
		devices, largest := 0, 0
		for range rapid.IntRange(1, 4).Draw(t, "kinds of gang") {
			g := bidder.Gangs{
				Count: rapid.IntRange(1, 5).Draw(t, "gangs"), Machines: rapid.IntRange(1, 2).Draw(t, "machines"),
				Devices: rapid.IntRange(least, 8).Draw(t, "devices"), Type: "k80",
			}
			row = append(row, g)
			devices += g.Size()
			largest = max(largest, g.Machines*g.Devices)
		}
		keeps := rapid.Float64Range(0.01, 1).Draw(t, "keeps")
		chance := rand.New(rand.NewPCG(1, 2))
		const draws = 1000
		sum := 0
		for range draws {
			n := 0
			for _, g := range pay(row, keeps, least, false, chance) {
				if g.Count != 1 || g.Devices < least {
					t.Fatalf("a gang %+v is kept", g)
				}
				n += g.Size()
			}
			if n > devices {
				t.Fatalf("%d of %d devices are kept", n, devices)
			}
			sum += n
		}
		// The draw decides about one gang; allow eight standard deviations of that.
		mean, off := float64(sum)/draws, 8*float64(largest)/2/math.Sqrt(draws)
		if want := keeps * float64(devices); math.Abs(mean-want) > off {
			t.Fatalf("%v devices are kept in the mean, want %v +- %v", mean, want, off)
		}
	})
}
