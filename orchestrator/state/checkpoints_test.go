package state_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func keysOf(checkpoints []*outbidv1.Checkpoint) []string {
	var keys []string
	for _, c := range checkpoints {
		keys = append(keys, c.GetKey())
	}
	return keys
}

// without saves a checkpoint without a metric.
func without(n int32, key string, step int64) *outbidv1.Event {
	e := saved(n, key, step, 0)
	e.GetCheckpointSaved().Checkpoint.Metric = nil
	return e
}

func dropped(n int32, key string) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_CheckpointDropped{CheckpointDropped: &outbidv1.CheckpointDropped{Sweep: "s-1", Trial: n, Key: key}}}
}

// unreadable is the failure of the fork of a trial's lease n+1 that could not read the checkpoint it should start
// from.
func unreadable(n int32, key string) *outbidv1.Event {
	f := failed(n, outbidv1.FailureKind_FAILURE_KIND_CHECKPOINT)
	f.Unreadable = key
	return failing(f)
}

// The checkpoints of one fork are in the order of their steps, although the best one may be written after later ones.
func TestTheOrderOfCheckpoints(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		events []*outbidv1.Event
		want   []string
	}{
		"as saved":                     {[]*outbidv1.Event{savedUnder(1, "a", 1), savedUnder(1, "b", 2)}, []string{"a", "b"}},
		"an earlier step late":         {[]*outbidv1.Event{savedUnder(1, "a", 1), savedUnder(1, "c", 3), savedUnder(1, "d", 4), savedUnder(1, "b", 2)}, []string{"a", "b", "c", "d"}},
		"the first of all late":        {[]*outbidv1.Event{savedUnder(1, "b", 2), savedUnder(1, "a", 1)}, []string{"a", "b"}},
		"the same step":                {[]*outbidv1.Event{savedUnder(1, "a", 1), savedUnder(1, "b", 1)}, []string{"a", "b"}},
		"a fork that went back":        {[]*outbidv1.Event{savedUnder(1, "b", 2), leaseEnded(0, 1), granted(0, 2, 0), savedUnder(2, "a", 1)}, []string{"b", "a"}},
		"who saved is not said":        {[]*outbidv1.Event{savedUnder(0, "b", 2), savedUnder(0, "a", 1)}, []string{"b", "a"}},
		"sent again, it is there once": {[]*outbidv1.Event{savedUnder(1, "a", 1), savedUnder(1, "b", 2), savedUnder(1, "a", 1)}, []string{"a", "b"}},
	} {
		st, s := running(t, spec(1), 1)
		apply(t, st, tc.events...)
		if got := keysOf(s.Trials[0].Checkpoints); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// The best checkpoints of a sweep are those with the best finite metrics, one of each trial; of equals, the lowest
// number comes first.
func TestTheBestCheckpoints(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		mode   string
		keep   int32
		events []*outbidv1.Event
		want   []int32
	}{
		"none is kept":                   {"min", 0, []*outbidv1.Event{saved(0, "a", 1, .5)}, nil},
		"the least first":                {"min", 3, []*outbidv1.Event{saved(0, "a", 1, .5), saved(1, "b", 1, .3), saved(2, "c", 1, .4)}, []int32{1, 2, 0}},
		"the most first":                 {"max", 3, []*outbidv1.Event{saved(0, "a", 1, .5), saved(1, "b", 1, .3), saved(2, "c", 1, .4)}, []int32{0, 2, 1}},
		"as many as are kept":            {"min", 2, []*outbidv1.Event{saved(0, "a", 1, .5), saved(1, "b", 1, .3), saved(2, "c", 1, .4)}, []int32{1, 2}},
		"of equals the first by number":  {"min", 3, []*outbidv1.Event{saved(2, "c", 1, .3), saved(0, "a", 1, .3), saved(1, "b", 1, .3)}, []int32{0, 1, 2}},
		"equals do not go before better": {"min", 3, []*outbidv1.Event{saved(1, "b", 1, .3), saved(0, "a", 1, .4)}, []int32{1, 0}},
		"one of a trial":                 {"min", 3, []*outbidv1.Event{saved(0, "a", 1, .5), saved(1, "b", 1, .4), saved(0, "c", 2, .3), saved(0, "d", 3, .6)}, []int32{0, 1}},
		"without a metric":               {"min", 3, []*outbidv1.Event{without(0, "a", 1), saved(1, "b", 1, .4)}, []int32{1}},
		"NaN and infinities":             {"max", 3, []*outbidv1.Event{saved(0, "a", 1, math.NaN()), saved(1, "b", 1, math.Inf(1)), saved(2, "c", 1, .1)}, []int32{2}},
		"what cannot be read":            {"min", 3, []*outbidv1.Event{saved(0, "a", 1, .1), saved(1, "b", 1, .4), unreadable(0, "a")}, []int32{1}},
		"then the next of that trial":    {"min", 3, []*outbidv1.Event{saved(0, "a", 1, .5), saved(0, "c", 2, .1), saved(1, "b", 1, .4), unreadable(0, "c")}, []int32{1, 0}},
		"one pushed out comes back":      {"min", 1, []*outbidv1.Event{saved(0, "a", 1, .1), saved(1, "b", 1, .4), unreadable(0, "a")}, []int32{1}},
	} {
		sp := spec(tc.keep)
		sp.Mode = tc.mode
		st, s := running(t, sp, 3)
		apply(t, st, tc.events...)
		for _, s := range []*state.Sweep{s, restore(t, st).Sweeps["s-1"]} {
			if got := s.Ranked(); !slices.Equal(got, tc.want) {
				t.Errorf("%s: %v, want %v", name, got, tc.want)
			}
		}
	}
}

func TestTheBestOfATrialsCheckpoints(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		events []*outbidv1.Event
		want   string
	}{
		"none":                           {nil, ""},
		"the best":                       {[]*outbidv1.Event{saved(0, "a", 1, .5), saved(0, "b", 2, .3), saved(0, "c", 3, .4)}, "b"},
		"of equals the first":            {[]*outbidv1.Event{saved(0, "a", 1, .3), saved(0, "b", 2, .3)}, "a"},
		"the newest where none has one":  {[]*outbidv1.Event{without(0, "a", 1), without(0, "b", 2)}, "b"},
		"none of those without":          {[]*outbidv1.Event{saved(0, "a", 1, .3), without(0, "b", 2)}, "a"},
		"none that is no number":         {[]*outbidv1.Event{saved(0, "a", 1, .3), saved(0, "b", 2, math.Inf(-1)), saved(0, "c", 3, math.NaN())}, "a"},
		"none that cannot be read":       {[]*outbidv1.Event{saved(0, "a", 1, .3), saved(0, "b", 2, .2), unreadable(0, "b")}, "a"},
		"the newest that can be read":    {[]*outbidv1.Event{without(0, "a", 1), without(0, "b", 2), unreadable(0, "b")}, "a"},
		"nothing where none can be read": {[]*outbidv1.Event{saved(0, "a", 1, .3), unreadable(0, "a")}, ""},
	} {
		st, s := running(t, spec(1), 1)
		apply(t, st, tc.events...)
		if got := s.BestCheckpoint(s.Trials[0]).GetKey(); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A clone's start is kept until the clone has saved a checkpoint, has ended, or was cloned from another trial.
func TestStartsOfClonesAreKept(t *testing.T) {
	t.Parallel()
	st, s := running(t, spec(0), 4)
	done := outbidv1.TrialState_TRIAL_STATE_COMPLETED
	for i, step := range []struct {
		event *outbidv1.Event
		kept  bool
	}{
		{saved(0, "a", 1, .5), true}, // it is the newest
		{cloned(1, 0, 9), true},
		{cloned(2, 0, 9), true},
		{cloned(3, 0, 9), true},
		{ended(0, done), true},
		{leaseEnded(0, 1), true},
		{saved(1, "b", 2, .4), true},
		{ended(2, done), true},
		{cloned(3, 1, 9), false},
	} {
		apply(t, st, step.event)
		for _, st := range []*state.State{st, restore(t, st)} {
			s := st.Sweeps["s-1"]
			if got := len(s.Droppable(s.Trials[0])) == 0; got != step.kept {
				t.Errorf("step %d: kept %t", i, got)
			}
		}
	}
	if got := s.Trials[3].From().GetKey(); got != "b" {
		t.Errorf("the clone starts from %q, want b", got)
	}
}

// No trial starts from a checkpoint that could not be read, whether it is the trial's own or the start of a clone.
func TestNoTrialStartsFromAnUnreadableCheckpoint(t *testing.T) {
	t.Parallel()
	st, s := running(t, spec(2), 4)
	apply(t, st, saved(0, "a", 1, .5), saved(0, "b", 2, .4), saved(3, "z", 1, .9), cloned(1, 0, 9), cloned(2, 0, 9))
	before := s.Version
	apply(t, st, unreadable(1, "b"))
	for n, want := range []string{"a", "a", "a", "z"} {
		if got := s.Trials[n].From().GetKey(); got != want {
			t.Errorf("trial %d goes on from %q, want %q", n, got, want)
		}
	}
	if got := s.ChangedSince(before); !slices.Equal(got, []int32{0, 1, 2}) {
		t.Errorf("%v changed", got)
	}
	if c := s.Trials[0].Checkpoints; c[0].GetUnreadable() || !c[1].GetUnreadable() || s.Trials[3].Checkpoints[0].GetUnreadable() {
		t.Errorf("marked %v", c)
	}
	if got := s.Ranked(); !slices.Equal(got, []int32{0, 3}) {
		t.Errorf("the best are of %v", got)
	}
	apply(t, st, unreadable(0, "a"))
	if got := s.Trials[0].From(); got != nil {
		t.Errorf("it starts from %v", got)
	}
	if got := s.Trials[1].From().GetKey(); got != "a" {
		t.Errorf("a clone whose own start could be read is at %q", got) // it will find out itself
	}
	apply(t, st, unreadable(2, "a"))
	if s.Trials[1].From() != nil || s.Trials[2].From() != nil {
		t.Errorf("clones start from %v and %v", s.Trials[1].From(), s.Trials[2].From())
	}
}

// An event must not change, because it is in the ledger.
func TestEventsAreNotChanged(t *testing.T) {
	t.Parallel()
	st, s := running(t, spec(1), 1)
	save := saved(0, "a", 1, .5)
	said := proto.CloneOf(save)
	apply(t, st, save, unreadable(0, "a"))
	if !proto.Equal(save, said) || !s.Trials[0].Checkpoints[0].GetUnreadable() {
		t.Errorf("the event is now %v", save)
	}
}

func TestDroppingCheckpoints(t *testing.T) {
	t.Parallel()
	st, s := running(t, spec(0), 1)
	apply(t, st, says(0, 1, .1), saved(0, "a", 1, .1), saved(0, "b", 2, .5), saved(0, "c", 3, .6), saved(0, "d", 3, .7))
	tr := s.Trials[0]
	if got := keysOf(s.Droppable(tr)); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%v may go while it trains, want all but the newest two", got)
	}
	apply(t, st, ended(0, outbidv1.TrialState_TRIAL_STATE_COMPLETED), dropped(0, "b"))
	if got := keysOf(s.Droppable(tr)); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("%v may go while its process is ending, want all but the newest", got)
	}
	apply(t, st, leaseEnded(0, 1))
	if got := keysOf(s.Droppable(tr)); !slices.Equal(got, []string{"a", "c", "d"}) {
		t.Errorf("%v may go where none is to be kept, want all", got)
	}
	for _, key := range []string{"b", "never"} {
		if err := st.Apply(at(), dropped(0, key)); !errors.Is(err, state.ErrBroken) {
			t.Errorf("%s was dropped: %v", key, err)
		}
	}
	if err := st.Apply(at(), saved(0, "", 1, .5)); !errors.Is(err, state.ErrBroken) {
		t.Errorf("a checkpoint without a key: %v", err)
	}
}

// A tenant's checkpoints count with their shards until they are dropped.
func TestTheSizeOfShardsCounts(t *testing.T) {
	t.Parallel()
	st, _ := running(t, spec(1), 1)
	e := savedUnder(1, "a", 1)
	c := e.GetCheckpointSaved().GetCheckpoint()
	c.Bytes, c.Shards, c.ShardBytes = 10, 4, 1000
	apply(t, st, e)
	if _, got := st.TenantBytes("default"); got != 1010 {
		t.Errorf("they take %d bytes", got)
	}
	apply(t, st, dropped(0, "a"))
	if _, got := st.TenantBytes("default"); got != 0 {
		t.Errorf("once dropped they take %d bytes", got)
	}
}
