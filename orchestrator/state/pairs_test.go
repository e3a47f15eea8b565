package state_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

type (
	event = outbidv1.Event
	// legal gives the state after an event by the state before. States that are missing must refuse the event.
	legal map[string]string
)

// same is legal for states that an event does not change.
func same(states ...string) legal {
	l := legal{}
	for _, s := range states {
		l[s] = s
	}
	return l
}

func (l legal) and(from, to string) legal {
	l[from] = to
	return l
}

// tryPairs applies every event in every state, and checks the result.
func tryPairs(
	t *testing.T, states map[string][]*event, events map[string]*event, want map[string]legal, word func(*state.State) string,
) {
	t.Helper()
	for from, before := range states {
		for name, e := range events {
			st := state.New()
			apply(t, st, before...)
			if got := word(st); got != from {
				t.Fatalf("what leads to %q leads to %q", from, got)
			}
			err := st.Apply(at(), e)
			kind, _, _ := strings.Cut(name, " ")
			rules, known := want[name]
			if !known {
				rules, known = want[kind]
			}
			if !known {
				t.Fatalf("the test does not say what %s may lead to", name)
			}
			switch to, ok := rules[from]; {
			case ok && err != nil:
				t.Errorf("%s, when it is %s: %v", name, from, err)
			case ok && word(st) != to:
				t.Errorf("%s, when it is %s, leads to %s, want %s", name, from, word(st), to)
			case !ok && !errors.Is(err, state.ErrBroken):
				t.Errorf("%s, when it is %s, must be refused as broken; was %v", name, from, err)
			}
		}
	}
}

// everyKind fails if a kind of event about one of these was not tried.
func everyKind(t *testing.T, events map[string]*event, about ...state.About) {
	t.Helper()
	tried := map[string]bool{}
	st := state.New()
	for _, e := range events {
		tried[st.Kind(e).Name] = true
	}
	for _, k := range state.Kinds() {
		if slices.Contains(about, k.About) && !tried[k.Name] {
			t.Errorf("%s is tried in no state", k.Name)
		}
	}
}

func leaseEvents() map[string]*event {
	revoked := func(how outbidv1.RevokeKind) *event {
		return &event{Kind: &outbidv1.Event_LeaseRevoked{LeaseRevoked: &outbidv1.LeaseRevoked{Sweep: "s-1", LeaseId: 1, How: how}}}
	}
	return map[string]*event{
		"LeaseGranted":       granted(0, 1, 0),
		"LeaseEnded":         leaseEnded(0, 1),
		"TrialAsked":         {Kind: &outbidv1.Event_TrialAsked{TrialAsked: &outbidv1.TrialAsked{Sweep: "s-1", LeaseId: 1, Client: "c"}}},
		"LeaseRevoked pause": revoked(outbidv1.RevokeKind_REVOKE_KIND_PAUSE),
		"LeaseRevoked stop":  revoked(outbidv1.RevokeKind_REVOKE_KIND_STOP),
		"LeaseRenewed":       {Kind: &outbidv1.Event_LeaseRenewed{LeaseRenewed: &outbidv1.LeaseRenewed{Sweep: "s-1", LeaseId: 1}}},
		"PlaceEnded":         {Kind: &outbidv1.Event_PlaceEnded{PlaceEnded: &outbidv1.PlaceEnded{Sweep: "s-1", LeaseId: 1, Node: "n"}}},
		"ForkStarted":        {Kind: &outbidv1.Event_ForkStarted{ForkStarted: &outbidv1.ForkStarted{Sweep: "s-1", LeaseId: 1}}},
		"ForkFailed": {Kind: &outbidv1.Event_ForkFailed{ForkFailed: &outbidv1.ForkFailed{
			Sweep: "s-1", LeaseId: 1, Kind: outbidv1.FailureKind_FAILURE_KIND_ERROR,
		}}},
		"TrialReported": reported(0, 1, .5),
		"ShardStored":   shardStored(1, 0, 3, 10),
		"TrialReached":  {Kind: &outbidv1.Event_TrialReached{TrialReached: &outbidv1.TrialReached{Sweep: "s-1", LeaseId: 1, Step: 3}}},
	}
}

func TestEveryEventInEveryStateOfATrial(t *testing.T) {
	t.Parallel()
	begun := []*event{submitted(spec(1)), joined(1), created(0), created(1), saved(0, "a", 1, .5)}
	states := map[string][]*event{
		"queued": begun, "running": append(slices.Clip(begun), granted(0, 1, 0)), "paused": append(slices.Clip(begun), paused(0)),
	}
	over := map[string]outbidv1.TrialState{
		"completed": outbidv1.TrialState_TRIAL_STATE_COMPLETED, "pruned": outbidv1.TrialState_TRIAL_STATE_STOPPED,
		"failed": outbidv1.TrialState_TRIAL_STATE_FAILED, "stopped": outbidv1.TrialState_TRIAL_STATE_CANCELLED,
	}
	events := leaseEvents()
	maps.Copy(events, map[string]*event{
		"ForksBegan":           {Kind: &outbidv1.Event_ForksBegan{ForksBegan: &outbidv1.ForksBegan{Sweep: "s-1", Forks: 2}}},
		"ConsolidationOrdered": {Kind: &outbidv1.Event_ConsolidationOrdered{ConsolidationOrdered: &outbidv1.ConsolidationOrdered{Sweep: "s-1", Node: "n"}}},
		"ForksEnded":           {Kind: &outbidv1.Event_ForksEnded{ForksEnded: &outbidv1.ForksEnded{Sweep: "s-1", Step: 5}}},
		"MergeJudged": {Kind: &outbidv1.Event_MergeJudged{MergeJudged: &outbidv1.MergeJudged{
			Sweep: "s-1", Key: "a", Verdict: outbidv1.MergeVerdict_MERGE_VERDICT_PENDING,
		}}},
		"MergeJudged kept": {Kind: &outbidv1.Event_MergeJudged{MergeJudged: &outbidv1.MergeJudged{
			Sweep: "s-1", Key: "a", Verdict: outbidv1.MergeVerdict_MERGE_VERDICT_KEPT,
		}}},
	})
	reopened := targeted(0, 9)
	reopened.GetTrialTargeted().Reopens = true
	maps.Copy(events, map[string]*event{
		"TrialPaused": paused(0), "TrialTargeted": targeted(0, 9), "TrialTargeted reopens": reopened, "TrialCloned": cloned(0, 1, 9), "TrialCreated": created(0),
		"TrialRetried":    {Kind: &outbidv1.Event_TrialRetried{TrialRetried: &outbidv1.TrialRetried{Sweep: "s-1"}}},
		"CheckpointSaved": saved(0, "b", 2, .5), "TrialEnded queued": ended(0, outbidv1.TrialState_TRIAL_STATE_QUEUED),
		"CheckpointDropped": {Kind: &outbidv1.Event_CheckpointDropped{CheckpointDropped: &outbidv1.CheckpointDropped{Sweep: "s-1", Key: "a"}}},
	})
	var ends, leased []string
	for word, s := range over {
		held := word + " and leased"
		states[word] = append(slices.Clip(begun), ended(0, s))
		states[held] = append(slices.Clip(begun), granted(0, 1, 0), ended(0, s))
		events["TrialEnded "+word] = ended(0, s)
		ends, leased = append(ends, word), append(leased, held)
	}
	withLease := same(append(leased, "running")...)
	leaseOver := legal{"running": "queued"}
	for _, word := range ends {
		leaseOver[word+" and leased"] = word
	}
	want := map[string]legal{
		"TrialCreated": {}, // it exists already
		"LeaseGranted": {"queued": "running"}, "TrialAsked": {"queued": "running"}, "LeaseEnded": leaseOver,
		"LeaseRevoked": withLease, "LeaseRenewed": withLease, "PlaceEnded": withLease, "ForkStarted": withLease,
		"ForkFailed": withLease, "ShardStored": withLease, "TrialReported": withLease, "TrialReached": withLease,
		"TrialPaused":   same("running").and("queued", "paused"),
		"TrialTargeted": same("queued", "running").and("paused", "queued").and("completed", "queued"),
		"TrialTargeted reopens": same("queued", "running").and("paused", "queued").and("completed", "queued").
			and("completed and leased", "running"),
		"TrialCloned":       same("queued", "running").and("paused", "queued"),
		"CheckpointSaved":   same(slices.Collect(maps.Keys(states))...),
		"CheckpointDropped": same(slices.Collect(maps.Keys(states))...),
		"TrialEnded queued": {}, "TrialRetried": {"failed": "queued"}, // once it holds no lease
		"ForksBegan": same("queued"), "ConsolidationOrdered": {}, "ForksEnded": {}, // it is not in a fork slot
		"MergeJudged": same("queued", "paused"), "MergeJudged kept": {}, // nothing is on probation
	}
	for _, word := range ends {
		want["MergeJudged"][word] = word
		want["TrialEnded "+word] = legal{"queued": word, "paused": word, "running": word + " and leased"}
	}
	everyKind(t, events, state.AboutTrial)
	tryPairs(t, states, events, want, func(st *state.State) string {
		trial := st.Sweeps["s-1"].Trials[0]
		if trial.Done() && trial.Lead() != nil {
			return state.TrialWord(trial.State) + " and leased"
		}
		return state.TrialWord(trial.State)
	})
}

func TestEveryEventInEveryStateOfALease(t *testing.T) {
	t.Parallel()
	events := leaseEvents()
	starting := []*event{submitted(spec(1)), joined(1), created(0), granted(0, 1, 0)}
	with := func(more ...string) []*event {
		all := slices.Clip(starting)
		for _, name := range more {
			all = append(all, events[name])
		}
		return all
	}
	states := map[string][]*event{
		"none": starting[:3], "starting": with(), "running": with("ForkStarted"), "pausing": with("LeaseRevoked pause"),
		"pausing later": with("ForkStarted", "LeaseRevoked pause"), "stopping": with("LeaseRevoked stop"),
		"stopping later": with("ForkStarted", "LeaseRevoked pause", "LeaseRevoked stop"),
	}
	held := []string{"starting", "running", "pausing", "pausing later", "stopping", "stopping later"}
	gone := legal{}
	for _, s := range held {
		gone[s] = "none"
	}
	stays := same(held...)
	started := same("running", "pausing later", "stopping later").and("starting", "running").and("pausing", "pausing later").
		and("stopping", "stopping later")
	want := map[string]legal{
		"LeaseGranted": {"none": "starting"}, "TrialAsked": {"none": "running"}, "LeaseEnded": gone, "ForkStarted": started,
		"LeaseRevoked pause": maps.Clone(stays).and("starting", "pausing").and("running", "pausing later"),
		"LeaseRevoked stop": same("stopping", "stopping later").and("starting", "stopping").and("running", "stopping later").
			and("pausing", "stopping").and("pausing later", "stopping later"),
		"LeaseRenewed": stays, "PlaceEnded": stays, "ForkFailed": stays, "TrialReported": stays, "TrialReached": stays, "ShardStored": stays,
	}
	tryPairs(t, states, events, want, func(st *state.State) string {
		l := st.Sweeps["s-1"].Trials[0].Lead()
		switch {
		case l == nil:
			return "none"
		case l.Revoking != outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED:
			how := map[bool]string{true: "pausing", false: "stopping"}[l.Revoking == outbidv1.RevokeKind_REVOKE_KIND_PAUSE]
			return how + map[bool]string{true: " later"}[l.Started]
		default:
			return map[bool]string{true: "running", false: "starting"}[l.Started]
		}
	})
	for name, e := range events { // the lease that was held before is no longer held
		if name == "LeaseGranted" || name == "TrialAsked" {
			continue
		}
		st := state.New()
		apply(t, st, append(with("LeaseEnded"), granted(0, 2, 0))...)
		if err := st.Apply(at(), e); !errors.Is(err, state.ErrBroken) {
			t.Errorf("%s of a lease that is over, while its trial holds another: %v", name, err)
		}
	}
}

func TestEveryEventInEveryStateOfASweep(t *testing.T) {
	t.Parallel()
	const (
		running  = outbidv1.SweepState_SWEEP_STATE_RUNNING
		pausedS  = outbidv1.SweepState_SWEEP_STATE_PAUSED
		stopping = outbidv1.SweepState_SWEEP_STATE_STOPPING
		done     = outbidv1.SweepState_SWEEP_STATE_DONE
		stopped  = outbidv1.SweepState_SWEEP_STATE_STOPPED
		failed   = outbidv1.SweepState_SWEEP_STATE_FAILED
	)
	to := func(s outbidv1.SweepState) *event { return changed("s-1", s) }
	begun := []*event{submitted(spec(1)), created(0)}
	states := map[string][]*event{
		"none": {joined(1)}, "running": begun, "paused": append(slices.Clip(begun), to(pausedS)), "stopping": append(slices.Clip(begun), to(stopping)),
		"done": append(slices.Clip(begun), to(done)), "stopped": append(slices.Clip(begun), to(stopping), to(stopped)),
		"failed": append(slices.Clip(begun), to(failed)),
	}
	events := map[string]*event{
		"SweepSubmitted": submitted(spec(1)), "SweepDeleted": deleted("s-1"),
		"SweepExtended": {Kind: &outbidv1.Event_SweepExtended{SweepExtended: &outbidv1.SweepExtended{Sweep: "s-1", Spec: spec(1)}}},
		"SweepAnnotated": {Kind: &outbidv1.Event_SweepAnnotated{SweepAnnotated: &outbidv1.SweepAnnotated{
			Sweep: "s-1", Annotation: &outbidv1.Annotation{Description: "best so far"},
		}}},
		"TunerAsked":    {Kind: &outbidv1.Event_TunerAsked{TunerAsked: &outbidv1.TunerAsked{Sweep: "s-1", N: 1}}},
		"TunerAnswered": {Kind: &outbidv1.Event_TunerAnswered{TunerAnswered: &outbidv1.TunerAnswered{Sweep: "s-1", Question: 1}}},
		"SoupPublished": soupPublished(1, "k"), "SoupPublished keyless": soupPublished(1, ""), "SoupPublished later": soupPublished(2, "k"),
		"SoupDropped":   {Kind: &outbidv1.Event_SoupDropped{SoupDropped: &outbidv1.SoupDropped{Sweep: "s-1", Key: "k"}}},
		"SweepAnswered": {Kind: &outbidv1.Event_SweepAnswered{SweepAnswered: &outbidv1.SweepAnswered{Sweep: "s-1", Admission: &outbidv1.Admission{Text: "no"}}}},
	}
	for n := range outbidv1.SweepState_name {
		s := outbidv1.SweepState(n)
		events["SweepChanged "+state.SweepWord(s)] = to(s)
	}
	all := slices.DeleteFunc(slices.Collect(maps.Keys(states)), func(s string) bool { return s == "none" })
	want := map[string]legal{
		"SweepSubmitted": {"none": "running"}, "SweepDeleted": {"done": "none", "stopped": "none", "failed": "none"},
		"SweepExtended": same("running", "paused").and("done", "running").and("stopped", "running"), "TunerAsked": same(all...), "SweepAnnotated": same(all...), "TunerAnswered": same(all...), "SweepAnswered": same(all...),
		"SoupPublished": same(all...), "SoupPublished keyless": {}, "SoupPublished later": {}, "SoupDropped": {}, // it has no soups
		"SweepChanged unspecified": {}, "SweepChanged running": {"paused": "running", "stopped": "running"},
		"SweepChanged paused": {"running": "paused"}, "SweepChanged stopping": {"running": "stopping", "paused": "stopping"},
		"SweepChanged done": {"running": "done", "stopping": "done"}, "SweepChanged stopped": {"stopping": "stopped"},
		"SweepChanged failed": {"running": "failed", "stopping": "failed"},
	}
	everyKind(t, events, state.AboutSweep)
	tryPairs(t, states, events, want, func(st *state.State) string {
		if s := st.Sweeps["s-1"]; s != nil {
			return state.SweepWord(s.State)
		}
		return "none"
	})
}

func soupPublished(number int32, key string) *event {
	return &event{Kind: &outbidv1.Event_SoupPublished{SoupPublished: &outbidv1.SoupPublished{
		Sweep: "s-1", Soup: &outbidv1.Soup{Number: number, Key: key},
	}}}
}

// A sweep keeps as many soups as checkpoints, and never reuses a number.
func TestASweepKeepsItsNewestSoups(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		best int32
		all  bool
		drop int
	}{{0, false, 2}, {1, false, 2}, {2, false, 1}, {5, false, 0}, {1, true, 0}} {
		sp := spec(1)
		sp.Checkpoints = &outbidv1.Checkpoints{Best: c.best, All: c.all}
		st := state.New()
		apply(t, st, submitted(sp), soupPublished(1, "a"), soupPublished(2, "b"), soupPublished(3, "c"))
		s := st.Sweeps["s-1"]
		before := s.Soups
		for _, old := range s.DroppableSoups() {
			apply(t, st, &event{Kind: &outbidv1.Event_SoupDropped{SoupDropped: &outbidv1.SoupDropped{Sweep: "s-1", Key: old.GetKey()}}})
		}
		if n := len(before) - len(s.Soups); n != c.drop || s.NextSoup() != 4 || before[0].GetKey() != "a" || s.Soups[len(s.Soups)-1].GetKey() != "c" {
			t.Errorf("%+v: %d are dropped, %v are left, the next is %d", c, n, s.Soups, s.NextSoup())
		}
	}
}

func TestEveryEventInEveryStateOfANode(t *testing.T) {
	t.Parallel()
	to := func(s outbidv1.NodeState) *event {
		return &event{Kind: &outbidv1.Event_NodeChanged{NodeChanged: &outbidv1.NodeChanged{Node: "n", State: s}}}
	}
	states := map[string][]*event{"none": nil, "up": {joined(1)}}
	events := map[string]*event{
		"NodeJoined": joined(2),
		"UplinkSeen": {Kind: &outbidv1.Event_UplinkSeen{UplinkSeen: &outbidv1.UplinkSeen{Node: "n", Boot: "b", Seq: 1}}},
		"NodeFaulted": {Kind: &outbidv1.Event_NodeFaulted{NodeFaulted: &outbidv1.NodeFaulted{
			Node: "n", Fault: &outbidv1.NodeFault{Reason: "no room", Unfit: true},
		}}},
		"NodeCleared": {Kind: &outbidv1.Event_NodeCleared{NodeCleared: &outbidv1.NodeCleared{Node: "n", Unfit: true}}},
	}
	for n := range outbidv1.NodeState_name {
		s := outbidv1.NodeState(n)
		events["NodeChanged "+state.NodeWord(s)] = to(s)
		if s > outbidv1.NodeState_NODE_STATE_UP {
			states[state.NodeWord(s)] = []*event{joined(1), to(s)}
		}
	}
	joins := legal{}
	for from := range states {
		joins[from] = "up"
	}
	want := map[string]legal{
		"NodeJoined": joins, "UplinkSeen": same("up", "draining", "lost", "left"),
		"NodeFaulted": same("up", "draining", "lost", "left"), "NodeCleared": same("up", "draining", "lost", "left"),
		"NodeChanged unspecified": {}, "NodeChanged up": {"draining": "up", "lost": "up"}, "NodeChanged draining": {"up": "draining"},
		"NodeChanged lost": {"up": "lost", "draining": "lost"}, "NodeChanged left": {"up": "left", "draining": "left", "lost": "left"},
	}
	everyKind(t, events, state.AboutNode)
	tryPairs(t, states, events, want, func(st *state.State) string {
		if n := st.Nodes["n"]; n != nil {
			return state.NodeWord(n.State)
		}
		return "none"
	})
	if len(states) != 5 {
		t.Errorf("%d states of nodes were tried: %s", len(states), fmt.Sprint(slices.Sorted(maps.Keys(states))))
	}
}
