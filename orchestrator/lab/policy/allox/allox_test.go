package allox

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// best tries every order of every split of the jobs over the machines.
func best(times [][]float64) float64 {
	machines := len(times[0])
	end := make([]float64, machines)
	var try func(left int) float64
	try = func(left int) float64 {
		if left == 0 {
			return 0
		}
		least := math.Inf(1)
		for i := range times {
			if left&(1<<i) == 0 {
				continue
			}
			for j := range machines {
				if math.IsInf(times[i][j], 1) {
					continue
				}
				end[j] += times[i][j]
				least = min(least, end[j]+try(left&^(1<<i)))
				end[j] -= times[i][j]
			}
		}
		return least
	}
	return try(1<<len(times) - 1)
}

func TestScheduleIsTheBest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		jobs, machines := rapid.IntRange(1, 5).Draw(t, "jobs"), rapid.IntRange(1, 3).Draw(t, "machines")
		times := make([][]float64, jobs)
		for i := range times {
			for j := range machines {
				seconds := float64(rapid.IntRange(1, 100).Draw(t, "seconds"))
				if j > 0 && rapid.IntRange(0, 4).Draw(t, "unable") == 0 {
					seconds = math.Inf(1)
				}
				times[i] = append(times[i], seconds)
			}
		}
		order, total, err := Schedule(times)
		if err != nil {
			t.Fatal(err)
		}
		sum, seen := 0.0, 0
		for j, list := range order {
			now := 0.0
			for _, i := range list {
				now += times[i][j]
				sum += now
				seen++
			}
		}
		if seen != jobs || math.Abs(sum-total) > 1e-9 {
			t.Fatalf("%d of %d jobs complete in %g s, said to be %g: %v", seen, jobs, sum, total, order)
		}
		if want := best(times); !(math.Abs(total-want) <= 1e-9) {
			t.Fatalf("completion times sum to %g s, the best is %g", total, want)
		}
	})
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	for want, times := range map[string][][]float64{
		"job 0 runs on no machine":                      {{math.Inf(1)}},
		"job 0 takes -1 s on machine 0: want 0 or more": {{-1}},
		"job 1 has times for 2 machines, job 0 for 1":   {{1}, {1, 2}},
	} {
		if _, _, err := Schedule(times); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func BenchmarkSchedule100Jobs36Machines(b *testing.B) {
	times := make([][]float64, 100)
	for i := range times {
		for j := range 36 {
			times[i] = append(times[i], float64(100+(i*7919+j/12*104729)%1000))
		}
	}
	for b.Loop() {
		if _, _, err := Schedule(times); err != nil {
			b.Fatal(err)
		}
	}
}
