package control_test

import (
	"fmt"
	"slices"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// ForksJobs: it does, as sweeps that say how their forks are put together want to be forked.
func (sharing) ForksJobs() bool { return true }

// merge is the only average that a node is to make.
func (c *forkedCluster) merge() *outbidv1.Consolidation {
	c.t.Helper()
	m := c.merges[c.trial().Round.Node]
	if len(m) != 1 {
		c.t.Fatalf("%d averages are to be made", len(m))
	}
	return m[0]
}

// leavesState has the node that averages say that it did, and what an outer optimizer left.
func (c *forkedCluster) leavesState(bytes int64) {
	c.t.Helper()
	m := c.merge()
	c.say(c.trial().Round.Node, &outbidv1.UplinkMessage{Fork: m.GetFork(), Kind: &outbidv1.UplinkMessage_Consolidated{Consolidated: &outbidv1.Consolidated{
		Attempt: m.GetAttempt(), Checkpoint: &outbidv1.Checkpoint{Key: m.GetKey(), Step: m.GetStep(), Outer: &outbidv1.OuterState{Bytes: bytes, Sha256: "ab"}},
	}}})
}

// A worker is told how to put forks together as the sweep says; an outer optimizer gets where the round began, and what the last
// step left, which lives as long as the checkpoint that it lies beside.
func TestAWorkerIsToldHowForksArePutTogether(t *testing.T) {
	t.Parallel()
	for merge, want := range map[string]bool{"": false, "steps": false, "uniform": true} {
		if m := halfway(t, merge).merge(); m.GetUniform() != want || m.GetOuter() != nil {
			t.Errorf("%q: %v", merge, m)
		}
	}
	c := halfway(t, "outer(0.5, 0.8)")
	if m := c.merge(); m.GetOuter() != nil {
		t.Errorf("a round that began with nothing has an outer step: %v", m)
	}
	c.leavesState(123) // as if there had been one
	round := func(from, a, b int64) {
		c.trains("a", from, from+a, 0)
		c.trains("b", from, from+b, 0)
		c.reaches("a", from+a)
		c.ends("a")
		c.reaches("b", from+b)
		c.ends("b")
	}
	round(80, 15, 5)
	first := "checkpoints/s-1/0/000000000080-1.ckpt"
	outer := c.merge().GetOuter()
	if got := fmt.Sprintf("%g %g %s %d", outer.GetRate(), outer.GetMomentum(), outer.GetStart().GetKey(), outer.GetStart().GetOuter().GetBytes()); got != "0.5 0.8 "+first+" 123" {
		t.Errorf("the outer step is %s", got)
	}
	if slices.Contains(c.deleted, first) {
		t.Fatalf("deleted were %v, and the next average is made of one of them", c.deleted)
	}
	c.leavesState(124)
	c.trains("a", 100, 101, 101)
	c.reaches("a", 101)
	c.ends("a")
	for _, key := range []string{first, first + ".outer"} {
		if !slices.Contains(c.deleted, key) {
			t.Errorf("%s is kept: deleted were %v", key, c.deleted)
		}
	}
}
