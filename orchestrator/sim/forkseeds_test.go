package sim_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Random sweeps whose trials may be forked, on random heterogeneous clusters, under HadarE and Themis in turn. Half of
// the runs are undisturbed or have failing nodes and code; half have a network that loses and delays messages, an
// orchestrator that crashes, and averages that fail. Each run meets every invariant, so that the steps that forks
// trained and saved count exactly once (slotbook.go), and its ledger gives the same decisions again.
// OUTBID_FORK_SEEDS=1000 runs more seeds.
func TestSeedsOfForks(t *testing.T) {
	t.Parallel()
	seeds := uint64(30)
	if testing.Short() {
		seeds = 4
	}
	if text := os.Getenv("OUTBID_FORK_SEEDS"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = n
	}
	var ran, averaged, kept, dropped atomic.Int64 // -run may select some
	t.Cleanup(func() {
		t.Logf("%d fork slots were averaged; of those to be judged %d were kept, %d dropped", averaged.Load(), kept.Load(), dropped.Load())
		if averaged.Load() < ran.Load() {
			t.Errorf("%d seeds, in which %d fork slots were averaged", ran.Load(), averaged.Load())
		}
		if ran.Load() >= 30 && (kept.Load() == 0 || dropped.Load() == 0) {
			t.Errorf("%d averages were kept, %d dropped", kept.Load(), dropped.Load())
		}
	})
	for seed := range seeds {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			d := dice{rand.New(rand.NewPCG(seed, 97))}
			led := ledger.NewMemory()
			err := runForks(d, seed, led)
			ran.Add(1)
			averaged.Add(int64(averages(t, led.Another())))
			stayed, went := verdicts(t, led.Another())
			kept.Add(stayed)
			dropped.Add(went)
			if err != nil {
				t.Fatalf("%v\nrun it again: OUTBID_FORK_SEEDS=%d go test ./orchestrator/sim -run '^%s$'", err, seed+1,
					strings.ReplaceAll(t.Name(), "/", "$/^"))
			}
		})
	}
}

// runForks runs the setup of a seed under HadarE with short slots, or under Themis with equally short leases.
func runForks(d dice, seed uint64, kept *ledger.Memory) error {
	set, slot := d.forkable(seed)
	if seed%2 == 1 {
		return runAndReplay(set, "themis", map[string]string{"lease": slot, "restart": "3s"}, kept)
	}
	return runAndReplay(set, "hadare", map[string]string{"round": slot}, kept)
}

// forkable returns a setup whose trials may be forked, and the length of its fork slots.
func (d dice) forkable(seed uint64) (set sim.Setup, slot string) {
	set = d.setup(seed)
	for _, kind := range []string{"v100", "p100", "k80"}[:d.between(2, 3)] { // one more node of each type, so that there are nodes for forks
		for range d.between(1, 2) {
			n := len(set.Nodes)
			set.Nodes = append(set.Nodes, d.node(n, "r1", kind))
		}
	}
	set.Apps = set.Apps[:min(len(set.Apps), 2)]
	for i := range set.Apps {
		s := set.Apps[i].Spec
		if s.GetTuner().GetPbt() != nil || d.chance(.2) {
			continue
		}
		s.Resources.Spread, s.Resources.Mixed = false, false
		s.Resources.Devices = &outbidv1.DeviceCount{Min: 1, Max: 1}
		s.Resources.Forks = d.oneOf("auto", "auto", "1-2", "2-5", "3-3")
	}
	slot = d.oneOf("180s", "360s", "720s")
	set.Forks = sim.ForkCosts{Upload: d.seconds(0, 20), Average: d.seconds(0, 30), Each: d.seconds(0, 10)}
	if d.chance(.3) {
		set.Mishaps.AverageFails = .5 * d.Float64()
	}
	if d.chance(.5) {
		set = d.behindNetwork(set)
		slot, set.SnapshotEvery = d.oneOf("12s", "20s", "40s"), 10*set.SnapshotEvery
		set.Forks = sim.ForkCosts{Upload: d.seconds(0, 2), Average: d.seconds(0, 8), Each: d.seconds(0, 1)}
	}
	for i := range set.Apps { // reported values rise, so with a mode of min every average is worse than its forks
		if s := set.Apps[i].Spec; s.GetResources().GetForks() != "" && d.chance(.5) {
			s.Resources.ForksMerge, s.Mode = "best", d.oneOf("min", "max")
		}
	}
	return set, slot
}
