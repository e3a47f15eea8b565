package control

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// However long processes work and idle, the limits of the server and of each tenant hold, and every waiting process
// gets a place in the end.
func TestSamplerLimitsHold(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		plan := samplerPlan{all: rapid.IntRange(1, 5).Draw(r, "all"), most: map[string]int64{}}
		for _, tenant := range []string{"a", "b", "c"} {
			plan.most[tenant] = rapid.Int64Range(1, 4).Draw(r, "most of "+tenant)
		}
		plan.processes = rapid.SliceOfN(rapid.Custom(func(r *rapid.T) samplerWork {
			return samplerWork{rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "tenant"), rapid.SliceOfN(rapid.IntRange(0, 40), 0, 6).Draw(r, "seconds")}
		}), 1, 12).Draw(r, "processes")
		wrong := ""
		synctest.Test(t, func(t *testing.T) { wrong = plan.run(t.Context()) })
		if wrong != "" {
			r.Fatal(wrong)
		}
	})
}

// samplerPlan lists processes that need a place, each with the durations of its questions.
type samplerPlan struct {
	all       int
	most      map[string]int64
	processes []samplerWork
}

type samplerWork struct {
	tenant  string
	seconds []int
}

// run returns what went wrong, or "".
func (p samplerPlan) run(ctx context.Context) string {
	s := newSamplers(p.all, func(tenant string) int64 { return p.most[tenant] })
	ctx, cancel := context.WithTimeout(ctx, 24*time.Hour)
	defer cancel()
	done := make(chan string, len(p.processes))
	for _, w := range p.processes {
		go func() { done <- p.work(ctx, s, w) }()
	}
	wrong := ""
	for range p.processes {
		wrong += <-done
	}
	if len(s.inside)+len(s.waiting) > 0 {
		wrong += "places are left"
	}
	return wrong
}

func (p samplerPlan) work(ctx context.Context, s *samplers, w samplerWork) string {
	for _, seconds := range w.seconds {
		at, err := s.enter(ctx, w.tenant)
		if err != nil {
			return "one never gets a place"
		}
		s.mu.Lock()
		over := len(s.inside) > p.all || int64(s.count(w.tenant)) > p.most[w.tenant]
		s.mu.Unlock()
		if over {
			return "too many run"
		}
		at.works(true)
		<-time.After(time.Duration(seconds) * time.Second)
		at.works(false)
		if seconds%2 == 0 { // it stays until its place is needed, or its sweep ends
			select {
			case <-at.wanted:
			case <-time.After(time.Hour):
			}
		}
		at.leave()
		at.leave()
	}
	return ""
}

// A process that stops waiting leaves nothing behind.
func TestAWaitingSamplerMayGiveUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSamplers(1, func(string) int64 { return 1 })
		first, err := s.enter(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		first.works(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.enter(ctx, "b"); err == nil {
			t.Fatal("two are inside, of one")
		}
		select {
		case <-first.wanted:
			t.Error("its turn was not over")
		default:
		}
		first.leave()
		if second, err := s.enter(t.Context(), "b"); err != nil {
			t.Fatal(err)
		} else {
			second.leave()
		}
	})
}
