// Package policytest checks that a policy keeps the rules that the control loop relies on. Authors of policies outside
// this repository can use it too.
package policytest

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Trait is a permission that some policies need.
type Trait int

// MayRefuse allows a policy to leave a job unserved forever, as admission control does.
const MayRefuse Trait = iota

// Run draws random clusters and jobs and lets the policy decide round after round, while jobs arrive, train, end and
// are stopped as it decides. Every plan is checked: see Check. A policy must not change its view, must depend only on
// the view and its snapshot, and must continue identically from a snapshot; one in which sweeps bid must also be able
// to decide a round again from the snapshot before it. If jobs fit on an idle cluster it must grant something, at the
// latest after a few decisions at Plan.Next.
func Run(t *testing.T, make func() policy.Policy, traits ...Trait) {
	t.Helper()
	t.Run("rounds", func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { runRounds(t, make, drawWorld(t)) }) })
	t.Run("quotas", func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { runRounds(t, make, drawBounded(t)) }) })
	for _, trait := range traits {
		if trait == MayRefuse {
			return
		}
	}
	t.Run("liveness", func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { runIdle(t, make, drawWorld(t)) }) })
	t.Run("liveness within quotas", func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { runIdle(t, make, drawBounded(t)) }) })
}

// runRounds is one story of a cluster, decided by the policy and by a shadow that is restored from its snapshots.
func runRounds(t *rapid.T, make func() policy.Policy, w *world) {
	p := make()
	for range rapid.IntRange(1, 10).Draw(t, "rounds") {
		shadow := restored(t, make, p)
		beginAgain(t, w, shadow)
		plan := w.decide(t, p)
		text := dumpPlan(plan)
		if again := dumpPlan(w.decide(t, shadow)); again != text {
			t.Fatalf("the same view and snapshot gave two plans:\n%s\nand\n%s", text, again)
		}
		sameState(t, p, shadow)
		if rapid.Bool().Draw(t, "restart") {
			p = shadow
		}
		w.apply(plan)
		w.advance(t, plan.Next)
	}
}

// idleRounds is how many decisions a policy may make on an idle cluster before it grants something.
const idleRounds = 64

// runIdle has jobs that fit wait on a cluster without running jobs.
func runIdle(t *rapid.T, make func() policy.Policy, w *world) {
	w.clear()
	if !w.canServe() {
		return
	}
	p := make()
	for round := range idleRounds {
		plan := w.decide(t, p)
		if len(plan.Grants) > 0 {
			return
		}
		if plan.Next.IsZero() {
			t.Fatalf("round %d: jobs wait that fit on the idle cluster, nothing is granted, and there is no next round:\n%s",
				round, dumpView(w.view()))
		}
		w.now = plan.Next
	}
	t.Fatalf("nothing was granted on an idle cluster in %d rounds:\n%s", idleRounds, dumpView(w.view()))
}

// restored makes a policy from another's snapshot.
func restored(t *rapid.T, make func() policy.Policy, p policy.Policy) policy.Policy {
	state, err := p.Snapshot()
	if err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	q := make()
	if state != nil {
		if err := q.Restore(state); err != nil {
			t.Fatalf("restore: %v", err)
		}
	}
	sameState(t, p, q)
	return q
}

// beginAgain makes a policy in which sweeps bid decide a round and then restores it, like the server, which learns in
// this way which bidders the round asks.
func beginAgain(t *rapid.T, w *world, p policy.Policy) {
	if _, bids := p.(policy.Bidding); !bids {
		return
	}
	state, err := p.Snapshot()
	if err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	w.decide(t, p)
	if err := p.Restore(state); err != nil {
		t.Fatalf("restore: %v", err)
	}
}

func sameState(t *rapid.T, p, q policy.Policy) {
	a, errA := p.Snapshot()
	b, errB := q.Snapshot()
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Fatalf("the same decisions left two states, %v and %v:\n%s\nand\n%s", errA, errB, a, b)
	}
}

// decide asks a policy about a separate view, and checks the plan and that the view is unchanged.
func (w *world) decide(t *rapid.T, p policy.Policy) policy.Plan {
	v := w.view()
	w.before = imprint(w.before[:0], v)
	plan := p.Decide(v)
	if w.after = imprint(w.after[:0], v); !bytes.Equal(w.after, w.before) {
		t.Fatalf("the policy changed its view from\n%s\nto\n%s", dumpView(w.view()), dumpView(v))
	}
	Check(t, v, plan)
	return plan
}
