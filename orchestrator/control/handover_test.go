package control_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// dial is a policy that runs at most a number of trials. The reason it gives for each depends on all earlier rounds
// and on its options in them, so the test notices if any of these is lost.
type dial struct {
	name       string
	salt, most int
	memory     uint64
}

func (d *dial) Name() string              { return d.name }
func (d *dial) Snapshot() ([]byte, error) { return []byte(strconv.FormatUint(d.memory, 10)), nil }

func (d *dial) Restore(data []byte) (err error) {
	if d.salt < 0 {
		return fmt.Errorf("salt %d goes with no memory", d.salt)
	}
	d.memory, err = strconv.ParseUint(string(data), 10, 64)
	return err
}

func (d *dial) Decide(v *policy.View) policy.Plan {
	d.memory = d.memory*6364136223846793005 + uint64(d.salt)
	p, running := policy.Extend(v), 0
	for _, j := range v.Jobs() {
		if j.Running() {
			running++
		}
	}
	for _, j := range v.Waiting() {
		if running < d.most && p.Place(j, strconv.FormatUint(d.memory, 10)) {
			running++
		}
	}
	return p.Plan("as dialled", "")
}

func (d *dial) settings() *outbidv1.PolicySettings {
	return &outbidv1.PolicySettings{
		Name: d.name, Options: map[string]string{"salt": strconv.Itoa(d.salt), "most": strconv.Itoa(d.most)},
	}
}

// dialled makes a policy from its settings.
func dialled(s *outbidv1.PolicySettings) (policy.Policy, error) {
	salt, err := strconv.Atoi(s.GetOptions()["salt"])
	if err != nil {
		return nil, err
	}
	most, err := strconv.Atoi(s.GetOptions()["most"])
	return &dial{name: s.GetName(), salt: salt, most: most}, err
}

func dialSettings() control.Settings {
	set := settings()
	set.NewPolicy = dialled
	return set
}

// restart replaces a bench's core, with or without a snapshot, and continues with another policy.
func (b *bench) restart(p *dial, saved bool) error {
	if saved {
		data, err := b.core.Snapshot()
		if err != nil {
			return err
		}
		if err := b.ledger.SaveSnapshot(context.Background(), b.core.State().Seq, data); err != nil {
			return err
		}
	}
	b.ledger = b.ledger.Another()
	core, err := control.Restore(context.Background(), dialSettings(), p, b.ledger, nil)
	if err != nil {
		return err
	}
	b.core = core
	started, err := core.Begin(b.now, "test", p.settings().GetOptions())
	if err != nil {
		return err
	}
	batch, err := b.ledger.Append(context.Background(), b.now, []*outbidv1.Event{started})
	if err != nil {
		return err
	}
	core.Appended(batch)
	return nil
}

// A ledger holds everything that its decisions depend on. Restarts with other options, with another policy and back,
// and with or without snapshots all lead to the same decisions in a replay.
func TestEachPeriodIsDecidedAgainWithItsOptions(t *testing.T) {
	t.Parallel()
	checks := 0
	rapid.Check(t, func(t *rapid.T) {
		if checks++; raceEnabled && checks > 20 {
			return // make test also checks all of them without the race detector
		}
		draw := func(name string) *dial {
			return &dial{name: name, salt: rapid.IntRange(0, 3).Draw(t, "salt"), most: rapid.IntRange(1, 4).Draw(t, "most")}
		}
		old := draw("dial") // an older server, which does not record its options
		b := story(t, old)
		for range rapid.IntRange(0, 5).Draw(t, "rounds of the older server") {
			b.work()
		}
		want := []control.PolicyPeriod{{Policy: "dial"}}
		for i := range rapid.IntRange(1, 5).Draw(t, "starts") {
			next := draw(rapid.SampledFrom([]string{"dial", "dial", "knob"}).Draw(t, "policy"))
			saved := i == 0 || rapid.Bool().Draw(t, "snapshot") // the state of an older server depends on options that were not recorded
			if err := b.restart(next, saved); err != nil {
				t.Fatal(err)
			}
			options := next.settings().GetOptions()
			if n := len(want); !want[n-1].Recorded || want[n-1].Policy != next.name || !maps.Equal(want[n-1].Options, options) {
				want = append(want, control.PolicyPeriod{Policy: next.name, Recorded: true, Options: options})
			}
			for range rapid.IntRange(0, 5).Draw(t, "rounds") {
				b.work()
			}
		}
		seen, err := control.Summarise(context.Background(), b.ledger)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, seen.History, cmpopts.IgnoreFields(control.PolicyPeriod{}, "First", "From", "Rounds")); diff != "" {
			t.Errorf("policy history (-want +got):\n%s", diff)
		}
		for name, rounds := range seen.Rounds {
			p := *old
			p.name, p.memory = name, 0
			audit, _, err := control.Replay(context.Background(), dialSettings(), &p, b.ledger)
			if err != nil {
				t.Fatal(err)
			}
			if audit.Rounds != rounds || audit.Differing > 0 {
				t.Errorf("of %s %d of %d rounds were decided again; differing: %+v", name, audit.Rounds, rounds, audit.Differences)
			}
		}
	})
}

// story returns a bench with a policy.
func story(t *rapid.T, p policy.Policy) *bench {
	spec := sim.Sweep("s", "min", 400, sim.Tuner("random", map[string]int64{"max_steps": 2}))
	return benchOf(t, control.NewCore(dialSettings(), p, state.New()), 4, spec)
}

// If a policy cannot continue from its saved state, the error names the options that it was saved with.
func TestAStartThatForgetsIsRefused(t *testing.T) {
	t.Parallel()
	b := benchOf(t, control.NewCore(dialSettings(), &dial{name: "dial"}, state.New()), 2,
		sim.Sweep("s", "min", 40, sim.Tuner("random", map[string]int64{"max_steps": 2})))
	for _, saved := range []bool{true, false} {
		if err := b.restart(&dial{name: "dial", salt: 2, most: 1}, true); err != nil {
			t.Fatal(err)
		}
		b.work()
		err := b.restart(&dial{name: "dial", salt: -1, most: 1}, saved)
		if err == nil || !strings.Contains(err.Error(), "policy dial cannot restore the state that it saved with other options") ||
			!strings.Contains(err.Error(), "most=1 salt=2: salt -1 goes with no memory") {
			t.Errorf("with a snapshot %v: %v", saved, err)
		}
	}
	if err := b.restart(&dial{name: "knob", salt: -1, most: 1}, false); err != nil {
		t.Errorf("another policy has nothing to remember: %v", err)
	}
}

// contested is a ledger to which another server appends a batch just before this server's first append.
type contested struct {
	*ledger.Memory
	last func()
}

func (c *contested) Append(ctx context.Context, at time.Time, events []*outbidv1.Event) (*outbidv1.Batch, error) {
	if c.last != nil {
		c.last()
		c.last = nil
	}
	return c.Memory.Append(ctx, at, events)
}

// A restore that is repeated because the previous leader appended another batch does not record anything twice.
func TestAContestedStartRemembersTheLedgerOnce(t *testing.T) {
	t.Parallel()
	for _, older := range []bool{true, false} {
		before := &dial{name: "dial", salt: 2, most: 2}
		b := benchOf(t, control.NewCore(dialSettings(), before, state.New()), 2,
			sim.Sweep("s", "min", 40, sim.Tuner("random", map[string]int64{"max_steps": 2})))
		if !older {
			before = &dial{name: "dial", salt: 3, most: 1}
			if err := b.restart(before, true); err != nil {
				t.Fatal(err)
			}
		}
		b.work()
		p := &dial{name: "dial", salt: 2, most: 2}
		l, err := control.Open(t.Context(), control.Config{
			Settings: dialSettings(), Policy: p, PolicyOptions: p.settings().GetOptions(),
			Ledger: &contested{b.ledger.Another(), b.work}, History: &reports{}, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
			Info: func() *outbidv1.GetServerInfoResponse { return &outbidv1.GetServerInfoResponse{} },
		})
		if err != nil {
			t.Fatal(err)
		}
		if p.memory != before.memory || before.memory == 0 {
			t.Errorf("after an older server %v: it remembers %d, not %d", older, p.memory, before.memory)
		}
		if diff := cmp.Diff(p.settings().GetOptions(), l.Info().GetPolicyOptions()); diff != "" {
			t.Error(diff)
		}
	}
}
