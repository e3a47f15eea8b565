package oasis

import (
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// cast is a stage with a policy and the messages to its sweeps.
type cast struct {
	*stagetest.Stage

	t    *testing.T
	p    policy.Policy
	told map[string][]*outbidv1.Admission
}

func play(t *testing.T, devices int, options map[string]string) *cast {
	t.Helper()
	return playVariant(t, Default(), devices, options)
}

// unconserving leaves devices without a promise idle, like the paper.
func unconserving() Variant {
	v := Default()
	v.Conserve = false
	return v
}

func playVariant(t *testing.T, variant Variant, devices int, options map[string]string) *cast {
	t.Helper()
	c := &cast{Stage: stagetest.New(stagetest.Nodes("v100", 1, devices, devices)...), t: t, told: map[string][]*outbidv1.Admission{}}
	o := policy.NewOptions(options)
	c.p = &listening{NewVariant(o, variant), c}
	if err := o.Err(); err != nil {
		t.Fatal(err)
	}
	return c
}

// listening records a policy's messages to sweeps.
type listening struct {
	policy.Policy

	c *cast
}

func (l *listening) Decide(v *policy.View) policy.Plan {
	plan := l.Policy.Decide(v)
	for _, a := range plan.Admissions {
		l.c.told[a.GetSweep()] = append(l.c.told[a.GetSweep()], a)
	}
	return plan
}

// sweep adds a sweep of trials with the given number of steps; a device does one step a second.
func (c *cast) sweep(id string, trials, least, most int, steps int64, u *terms.Utility) *policy.App {
	a := c.App(id, id)
	a.Speeds = &cluster.Speeds{Measured: []cluster.Speed{{Type: "v100", Devices: 1, Locality: cluster.SameSlot, Rate: 1}}}
	a.Utility, a.Demand = u, cluster.Demand{Min: least, Max: most}
	for range trials {
		c.Job(a, least, most, steps)
	}
	return a
}

func (c *cast) last(id string) *outbidv1.Admission {
	c.t.Helper()
	if len(c.told[id]) == 0 {
		c.t.Fatalf("%s was told nothing", id)
	}
	return c.told[id][len(c.told[id])-1]
}

func (c *cast) wants(id, kind, text string) {
	c.t.Helper()
	if a := c.last(id); !strings.HasSuffix(a.GetKind().String(), kind) || !strings.Contains(a.GetText(), text) {
		c.t.Errorf("%s was told %s, %q; want %s, %q", id, a.GetKind(), a.GetText(), kind, text)
	}
}

func held(a *policy.App) (n int) {
	for _, j := range a.Jobs {
		n += j.Held().Size()
	}
	return n
}

// An admitted sweep gets a schedule, trains by it with a gang that grows and shrinks from slot to slot, and ends when
// promised.
func TestAnAdmittedSweepFollowsItsSchedule(t *testing.T) {
	t.Parallel()
	c := playVariant(t, unconserving(), 8, map[string]string{"slot": "10m", "slots": "20", "slack": "0"})
	first := c.sweep("first", 1, 1, 4, 4*1200, &terms.Utility{Kind: terms.Sigmoid, Worth: 100, By: 1800, Decay: 1e-3})
	second := c.sweep("second", 1, 1, 8, 8*1800, &terms.Utility{Kind: terms.Sigmoid, Worth: 100, By: 3600, Decay: 1e-3})
	c.Run(t, c.p, time.Minute)
	c.wants("first", "ADMITTED", "admitted: ")
	c.wants("second", "ADMITTED", "payoff ")
	sizes := map[int]bool{}
	for range 20 {
		for _, s := range c.last("second").GetSchedule() {
			if !c.Now.Before(s.GetBegins().AsTime()) && c.Now.Before(s.GetEnds().AsTime()) && len(second.Jobs) > 0 && held(second) != int(s.GetWorkers()) {
				t.Errorf("at %s it holds %d devices, and is promised %d workers", c.Now, held(second), s.GetWorkers())
			}
		}
		sizes[held(second)] = true
		c.Run(t, c.p, 10*time.Minute)
	}
	if delete(sizes, 0); len(sizes) < 2 {
		t.Errorf("it had %v workers, and never more or fewer", sizes)
	}
	for _, a := range []*policy.App{first, second} {
		if len(a.Jobs) > 0 {
			t.Fatalf("%s does not end", a.ID)
		}
		c.wants(a.ID, "OVER", "as promised")
	}
}

// A sweep that would cost more than it is worth waits, gets the time when it would be admitted, and is offered again
// then.
func TestARefusedSweepIsOfferedAgain(t *testing.T) {
	t.Parallel()
	c := playVariant(t, unconserving(), 2, map[string]string{"slot": "10m", "slots": "6", "slack": "0"})
	c.sweep("dear", 1, 2, 2, 5*600*2, &terms.Utility{Kind: terms.Step, Worth: 1000, By: 1e6})
	cheap := c.sweep("cheap", 1, 2, 2, 600*2, &terms.Utility{Kind: terms.Step, Worth: 1, By: 1e6})
	c.Run(t, c.p, time.Minute)
	c.wants("dear", "ADMITTED", "1 to 1 workers")
	c.wants("cheap", "WAITING", "not admitted now: ")
	if again := c.last("cheap").GetAgain(); again == nil || !again.AsTime().After(c.Now) || held(cheap) > 0 {
		t.Fatalf("it holds %d devices and is told to come at %v", held(cheap), again)
	}
	at := c.last("cheap").GetAgain().AsTime()
	c.Run(t, c.p, at.Sub(c.Now)+time.Minute)
	c.wants("cheap", "ADMITTED", "admitted: ")
	c.Run(t, c.p, 3*time.Hour)
	c.wants("cheap", "OVER", "as promised")
}

// With refused=reject the policy rejects a sweep once, and control then stops it.
func TestARejectedSweepIsNotOfferedAgain(t *testing.T) {
	t.Parallel()
	c := playVariant(t, unconserving(), 2, map[string]string{"slots": "3", "refused": "reject"})
	c.sweep("late", 1, 2, 2, 100_000, &terms.Utility{Kind: terms.Step, Worth: 1, By: 60})
	c.Run(t, c.p, 2*time.Hour)
	c.wants("late", "REJECTED", "rejected: not admitted")
	if n := len(c.told["late"]); n != 1 {
		t.Errorf("told %d times", n)
	}
}

// The loss of a node breaks a promise that the other nodes cannot keep, and the message contains the reason.
func TestBrokenPromiseIsReported(t *testing.T) {
	t.Parallel()
	c := play(t, 4, map[string]string{"slot": "10m", "slots": "30", "slack": "0"})
	c.Nodes = append(c.Nodes, stagetest.Nodes("v100", 2, 4, 4)[1])
	c.sweep("s", 8, 1, 1, 1800, &terms.Utility{Kind: terms.Sigmoid, Worth: 100, By: 1800, Decay: 1e-2})
	c.Run(t, c.p, time.Minute)
	c.wants("s", "ADMITTED", "8 workers")
	c.Nodes[1].Draining = true
	c.Run(t, c.p, 10*time.Minute)
	c.wants("s", "BROKEN", "devices that it was promised are gone")
	c.Run(t, c.p, 10*time.Hour)
	if a := c.last("s"); !strings.HasPrefix(a.GetText(), "over at ") || len(c.told["s"]) < 3 {
		t.Errorf("at last it was told %q, after %d", a.GetText(), len(c.told["s"]))
	}
}

// A sweep that has not been measured runs on idle devices and yields to promises.
func TestIdleDevicesAreUsedUntilPromised(t *testing.T) {
	t.Parallel()
	c := play(t, 4, nil)
	unknown := c.sweep("unknown", 4, 1, 1, 100_000, nil)
	unknown.Speeds.Measured = nil
	c.Run(t, c.p, time.Minute)
	c.wants("unknown", "MEASURING", "its speed is not known yet")
	if held(unknown) != 4 {
		t.Errorf("it holds %d of 4 idle devices", held(unknown))
	}
	c.sweep("known", 1, 2, 2, 2400, &terms.Utility{Kind: terms.Step, Worth: 50, By: 7200})
	c.Run(t, c.p, time.Minute)
	c.wants("known", "ADMITTED", "1 to 1 workers")
	if held(unknown) != 2 {
		t.Errorf("it holds %d devices in addition to two that are promised", held(unknown))
	}
}

// Prices rise with promises, and include the number of sweeps that they were learnt from.
func TestPricesArePublished(t *testing.T) {
	t.Parallel()
	c := play(t, 8, map[string]string{"slots": "10"})
	c.sweep("s", 4, 1, 1, 600, nil)
	plan := c.Decide(t, c.p)
	p := plan.Prices
	if p.GetSweeps() != 1 || p.GetSlots() != 10 || len(p.GetPrices()) < 2 {
		t.Fatalf("prices %v", p)
	}
	first, last := p.GetPrices()[0], p.GetPrices()[len(p.GetPrices())-1]
	if !(first.GetDevice() > last.GetDevice()) || last.GetDevice() != p.GetRanges()[0].GetLow() || first.GetPromised() <= 0 {
		t.Errorf("at first %v, in the end %v, ranges %v", first, last, p.GetRanges())
	}
}
