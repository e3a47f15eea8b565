package control

import (
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/remote"
)

// Questions about trials are sent together in their order. A question that may take long is sent alone.
func TestWhichQuestionsAreSentTogether(t *testing.T) {
	t.Parallel()
	a := &tunerClient{more: make(chan struct{}, 1)}
	events := []tuner.Event{
		tuner.Ask{N: 1},
		tuner.Reported{Trial: 0},
		tuner.Reached{Trial: 0},
		tuner.Exited{Trial: 1},
		tuner.Ask{N: 1},
		tuner.Extended{},
		tuner.Reported{Trial: 2},
		tuner.Reported{Trial: 2},
	}
	var open []remote.Question
	for i, e := range events {
		open = append(open, remote.Question{Number: uint64(i + 1), Event: e})
	}
	a.give(open)
	next := uint64(1)
	for i, want := range []int{1, 2, 1, 1, 1, 2, 0} {
		most := 2
		got := a.pop(most)
		if len(got) != want {
			t.Fatalf("the %d. time %d questions are taken, want %d", i+1, len(got), want)
		}
		for _, q := range got {
			if q.Number != next {
				t.Fatalf("question %d is taken, want %d", q.Number, next)
			}
			next++
		}
	}
}

// A call holds as many questions as a process answers in ten milliseconds.
func TestHowManyQuestionsAreSentTogether(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		asked int
		took  time.Duration
		want  int
	}{
		{1, time.Second, 1},
		{1, 10 * time.Millisecond, 1},
		{1, time.Millisecond, 10},
		{10, 10 * time.Millisecond, 10},
		{64, 20 * time.Millisecond, 32},
		{64, time.Microsecond, 64},
		{1, 0, 64},
	} {
		if got := together(c.asked, c.took); got != c.want {
			t.Errorf("after %d in %s it is asked %d", c.asked, c.took, got)
		}
	}
}
