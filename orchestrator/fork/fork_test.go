package fork_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/fork"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestDivide(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		left  int64
		rates []float64
		slot  time.Duration
		want  []int64
	}{
		"in proportion": {7000, []float64{4, 2, 1}, 90 * time.Second, []int64{4000, 2000, 1000}},
		"all steps, also those that rounding lost": {10, []float64{1, 1, 1}, time.Second, []int64{4, 3, 3}},
		"only the fastest, if that is enough":      {300, []float64{1, 4, 2}, 90 * time.Second, []int64{0, 300, 0}},
		"the two fastest":                          {500, []float64{1, 4, 2}, 90 * time.Second, []int64{0, 333, 167}},
		"none where it does not run":               {500, []float64{0, math.NaN(), 1}, time.Second, []int64{0, 0, 500}},
		"nobody can":                               {500, []float64{0, 0}, time.Second, []int64{0, 0}},
		"nothing is left":                          {0, []float64{1, 2}, time.Second, []int64{0, 0}},
		"fewer steps than nodes":                   {2, []float64{1, 1, 1}, time.Second, []int64{1, 1, 0}},
		"no slot":                                  {100, []float64{1, 2}, 0, []int64{0, 100}},
	} {
		if diff := cmp.Diff(tc.want, fork.Divide(tc.left, tc.rates, tc.slot)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

func drawRates(t *rapid.T, least int) []float64 {
	return rapid.SliceOfN(rapid.Float64Range(0.01, 1000), least, 8).Draw(t, "rates")
}

func sum(shares []int64) (total int64) {
	for _, s := range shares {
		total += s
	}
	return total
}

// The shares add up to the total. While all nodes are needed, each share is proportional to its rate, to within a
// step.
func TestSharesAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		left, rates := rapid.Int64Range(0, 1<<62).Draw(t, "left"), drawRates(t, 0)
		slot := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "slot"))
		shares := fork.Divide(left, rates, slot)
		if len(rates) > 0 && sum(shares) != left {
			t.Fatalf("%v add up to %d of %d", shares, sum(shares), left)
		}
		total := 0.0
		for _, r := range rates {
			total += r
		}
		for i, s := range shares {
			for k, other := range shares[:i] { // each may be off by a step
				apart := math.Abs(float64(s)/rates[i] - float64(other)/rates[k])
				if s > 0 && other > 0 && left < 1<<40 && apart > 1.001*(1/rates[i]+1/rates[k]) {
					t.Fatalf("nodes %d and %d of %v have %v of %d", k, i, rates, shares, left)
				}
			}
			if s == 0 && slot > 0 && float64(left) > total*slot.Seconds() && float64(left)*rates[i]/total >= 1 {
				t.Fatalf("node %d of %v idles, and %d steps are more than a slot of %s holds", i, rates, left, slot)
			}
		}
	})
}

// trained simulates a job with forks on the fastest nodes, and returns the number of fork slots and the mean
// utilisation of the nodes in them.
func trained(t *rapid.T, steps int64, rates []float64, forks int, slot time.Duration) (slots int, utilisation float64) {
	mine := rates[:min(forks, len(rates))]
	for left := steps; left > 0; slots++ {
		if slots > 1<<16 {
			t.Fatalf("no end: %d steps are left at %v", left, mine)
		}
		busy := 0.0
		for i, share := range fork.Divide(left, mine, slot) {
			done := min(share, int64(mine[i]*slot.Seconds()))
			if left -= done; share > done {
				busy++
			} else {
				busy += float64(done) / mine[i] / slot.Seconds()
			}
		}
		utilisation += busy / float64(len(rates))
	}
	return slots, utilisation / float64(slots)
}

// Theorem 3: the more copies a job is forked into, up to the number of nodes, the higher the utilisation; more copies
// change nothing. The slots are short enough that the last one, in which some nodes idle, hardly matters.
func TestMoreForksUseNodesBetter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slot := time.Duration(rapid.IntRange(90, 720).Draw(t, "slot")) * time.Second
		n := rapid.IntRange(2, 6).Draw(t, "nodes")
		rates, all := make([]float64, n), 0.0
		for i := range rates {
			rates[i] = float64(rapid.IntRange(2*(n-i), 2*(n-i)+1).Draw(t, "rate")) // the fastest first
			all += rates[i]
		}
		steps := int64(all*slot.Seconds()) * int64(rapid.IntRange(2*n, 4*n).Draw(t, "slots"))
		before, last := 0, 0.0
		for forks := 1; forks <= n+2; forks++ {
			slots, used := trained(t, steps, rates, forks, slot)
			switch {
			case forks > 1 && forks <= n && (used <= last || slots > before):
				t.Fatalf("%d forks: utilisation %v in %d slots; one fork less: %v in %d", forks, used, slots, last, before)
			case forks > n && (used != last || slots != before):
				t.Fatalf("%d forks on %d nodes: utilisation %v in %d slots, and %d forks %v in %d", forks, n, used, slots, n, last, before)
			}
			before, last = slots, used
		}
	})
}

// Whatever forks do, a slot ends in time and saved steps count once: no saved step is lost, no other step counts, and
// the total never exceeds the target.
func TestStepsAreConserved(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		target := rapid.Int64Range(1, 10_000).Draw(t, "target")
		var record *outbidv1.Checkpoint
		lease, saved := uint64(1), int64(0)
		for n := 0; record.GetStep() < target && n < 50; n++ {
			r := fork.Begin(record, 8, time.Time{})
			for _, share := range fork.Divide(target-r.From, drawRates(t, 1), time.Second) {
				if share > 0 {
					r = r.Join(lease, share)
					lease++
				}
			}
			for i := range r.Parts {
				id, at := r.Parts[i].Lease, r.From
				for range rapid.IntRange(0, 4).Draw(t, "moments") {
					at = rapid.Int64Range(at, r.Until(id)).Draw(t, "step")
					if r = r.Reported(id, at); rapid.Bool().Draw(t, "saves") {
						r = r.Saved(id, &outbidv1.Checkpoint{Step: at, LeaseId: id})
					}
				}
			}
			for i := range r.Parts {
				saved += r.Steps(&r.Parts[i])
				if r = r.Ended(r.Parts[i].Lease); r.Over() != (i == len(r.Parts)-1) {
					t.Fatalf("%d of %d forks have ended, and the slot is over: %t", i+1, len(r.Parts), r.Over())
				}
			}
			if r.Counts() != saved || r.Step() != saved || saved > target {
				t.Fatalf("the slot adds up to %d, and to %d by what was said; %d of %d were saved", r.Counts(), r.Step(), saved, target)
			}
			weights := int64(0)
			for _, p := range r.Sources() {
				weights += r.Steps(&p)
			}
			if weights != r.Counts()-r.From {
				t.Fatalf("weights add up to %d, steps to %d", weights, r.Counts()-r.From)
			}
			if r.Counts() > r.From {
				record = &outbidv1.Checkpoint{Step: r.Counts()}
			}
		}
	})
}

// A Slot is a value: one that readers have does not change.
func TestSlotsDoNotChange(t *testing.T) {
	t.Parallel()
	r := fork.Begin(&outbidv1.Checkpoint{Step: 10}, 2, time.Time{}).Join(1, 30).Join(2, 10)
	next := r.Reported(1, 20).Saved(1, &outbidv1.Checkpoint{Step: 15}).Ended(1).Saved(2, &outbidv1.Checkpoint{Step: 12}).Ordered(1, "a", "b").Voided()
	if r.Step() != 10 || r.Counts() != 10 || r.Parts[0].Over || r.Attempt != 0 || r.Void {
		t.Errorf("it has become %+v", r)
	}
	if next.Step() != 15 || next.Counts() != 17 || next.Until(1) != 40 || next.Until(9) != 10 || next.Over() {
		t.Errorf("it is %+v, at %d", next, next.Step())
	}
	if older := next.Saved(1, &outbidv1.Checkpoint{Step: 11}); older.Counts() != 17 {
		t.Errorf("an older checkpoint makes it %d", older.Counts())
	}
	if p, i := (*fork.Slot)(nil).Part(1); p != nil || i >= 0 {
		t.Errorf("no slot has part %v", p)
	}
}
