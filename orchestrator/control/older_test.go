package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/ledger/ledgertest"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// standing is the state after a batch in a form that does not depend on how a version represents it. The files in
// ledger/testdata/format2 were written by the last version with ledgers of format 2.
type standing struct {
	Seq     uint64              `json:"seq"`
	Sweeps  []json.RawMessage   `json:"sweeps"`
	Trials  []json.RawMessage   `json:"trials"`
	Nodes   []json.RawMessage   `json:"nodes"`
	Queued  map[string][]int32  `json:"queued"`
	Running map[string][]int32  `json:"running"`
	Ranked  map[string][]int32  `json:"ranked"`
	Jobs    map[string][]int32  `json:"jobs"`
	Leases  []standingLease     `json:"leases"`
	Next    uint64              `json:"next_lease"`
	Best    map[string]int32    `json:"best"`
	Starts  map[string]string   `json:"starts"`
	Measure map[string][]string `json:"measured"`
	// Snapshot is the server's own snapshot.
	Snapshot []byte `json:"snapshot"`
}

// standingLease is a lease that was held.
type standingLease struct {
	Trial    string          `json:"trial"`
	ID       uint64          `json:"id"`
	Client   string          `json:"client"`
	Places   []standingPlace `json:"places"`
	Granted  time.Time       `json:"granted"`
	TermEnd  time.Time       `json:"term_end"`
	Revoking string          `json:"revoking"`
	Started  bool            `json:"started"`
	From     int64           `json:"from_step"`
	Version  uint64          `json:"version"`
	Training time.Time       `json:"training"`
	Reports  uint64          `json:"reports"`
	Type     string          `json:"type"`
	Spread   string          `json:"spread"`
}

type standingPlace struct {
	Node    string  `json:"node"`
	Devices []int32 `json:"devices"`
	Ended   bool    `json:"ended"`
}

func stand(t *testing.T, c *control.Core) *standing {
	t.Helper()
	st := c.State()
	s := &standing{
		Seq: st.Seq, Queued: map[string][]int32{}, Running: map[string][]int32{}, Ranked: map[string][]int32{},
		Best: map[string]int32{}, Starts: map[string]string{}, Measure: map[string][]string{}, Next: st.NextLease,
	}
	for _, name := range st.NodeNames {
		s.Nodes = append(s.Nodes, asJSON(t, st.Nodes[name].NodeView()))
	}
	for _, id := range st.SweepIDs {
		sw := st.Sweeps[id]
		s.Sweeps = append(s.Sweeps, asJSON(t, st.View(sw)))
		s.Queued[id], s.Running[id], s.Ranked[id] = slices.Clone(sw.Queued), slices.Clone(sw.Running), sw.Ranked()
		s.Best[id] = sw.Best
		for _, m := range sw.Measured {
			s.Measure[id] = append(s.Measure[id], fmt.Sprint(m))
		}
		for _, tr := range sw.Trials {
			s.Trials = append(s.Trials, asJSON(t, st.TrialView(sw, tr)))
			name := fmt.Sprintf("%s/%d", id, tr.Number)
			s.Starts[name] = tr.From().GetKey()
			if l := standingLeaseOf(name, tr); l != nil {
				s.Leases = append(s.Leases, *l)
			}
		}
	}
	return s
}

func standingLeaseOf(name string, tr *state.Trial) *standingLease {
	l := tr.Lead()
	if l == nil {
		return nil
	}
	held := &standingLease{
		Trial: name, ID: l.ID, Client: l.Client, Granted: l.Granted, TermEnd: l.TermEnd, Revoking: l.Revoking.String(),
		Started: l.Started, From: l.FromStep, Version: l.Version, Training: l.Training, Reports: l.LastReportSeq,
		Type: l.Type(), Spread: l.Locality().String(),
	}
	for _, p := range l.Places {
		held.Places = append(held.Places, standingPlace{p.Node, p.Devices, p.Ended})
	}
	return held
}

func asJSON(t *testing.T, m proto.Message) json.RawMessage {
	t.Helper()
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		t.Fatal(err)
	}
	return compact.Bytes()
}

// older returns a ledger that an older version wrote, and the states that it led to then.
func older(t *testing.T) (*ledger.Lines, []*standing) {
	t.Helper()
	var then []*standing
	if err := json.Unmarshal(ledgertest.Unzipped(t, "../ledger/testdata/format2/standing.json.gz"), &then); err != nil {
		t.Fatal(err)
	}
	text := ledgertest.Unzipped(t, "../ledger/testdata/format2/ledger.jsonl.gz")
	return ledger.NewLines(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }), then
}

// upTo is a ledger that ends after a batch, and begins with a snapshot if there is one.
type upTo struct {
	*ledger.Lines
	last     uint64
	at       uint64
	snapshot []byte
}

var errEnough = errors.New("that is all")

func (l upTo) Read(ctx context.Context, from uint64, f func(*outbidv1.Batch) error) error {
	err := l.Lines.Read(ctx, from, func(b *outbidv1.Batch) error {
		if b.GetSeq() > l.last {
			return errEnough
		}
		return f(b)
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func (l upTo) LoadSnapshot(context.Context) (uint64, []byte, error) { return l.at, l.snapshot, nil }

func olderCore(t *testing.T, l ledger.Ledger) *control.Core {
	t.Helper()
	set := settings()
	set.NewPolicy = func(p *outbidv1.PolicySettings) (policy.Policy, error) {
		return registry.New(p.GetName(), policy.NewOptions(p.GetOptions()))
	}
	own, err := registry.New("themis", nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := control.Restore(t.Context(), set, own, l, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A ledger of an older version leads to the same states as it did then, from its start and from each of its
// snapshots.
func TestAnOlderLedgerIsFoldedAsItWas(t *testing.T) {
	if raceEnabled {
		t.Skip("it only computes: make test runs it without the race detector")
	}
	t.Parallel()
	lines, then := older(t)
	for i, want := range then {
		c := olderCore(t, upTo{Lines: lines, last: want.Seq})
		sameStanding(t, fmt.Sprintf("batch %d", want.Seq), stand(t, c), want)
		for _, from := range then[:i+1] {
			if from.Snapshot == nil {
				continue
			}
			c := olderCore(t, upTo{Lines: lines, last: want.Seq, at: from.Seq, snapshot: from.Snapshot})
			sameStanding(t, fmt.Sprintf("batch %d, from the snapshot of %d", want.Seq, from.Seq), stand(t, c), want)
			again, err := c.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			c = olderCore(t, upTo{Lines: lines, last: want.Seq, at: want.Seq, snapshot: again})
			sameStanding(t, fmt.Sprintf("batch %d, from a snapshot of this version", want.Seq), stand(t, c), want)
		}
	}
}

// seenAsPaused adapts the older version's view of trials that wait in a paused sweep, which it showed as queued.
func seenAsPaused(sweeps []*outbidv1.Sweep, trials []*outbidv1.Trial) {
	for _, s := range sweeps {
		if s.GetState() != outbidv1.SweepState_SWEEP_STATE_PAUSED {
			continue
		}
		of := slices.DeleteFunc(slices.Clone(trials), func(t *outbidv1.Trial) bool { return t.GetSweep() != s.GetId() })
		for _, t := range append(of, s.GetBest()) {
			if t != nil && t.State == outbidv1.TrialState_TRIAL_STATE_QUEUED && t.Round == nil {
				t.State = outbidv1.TrialState_TRIAL_STATE_PAUSED
			}
		}
		s.Counts.Paused, s.Counts.Queued = s.GetCounts().GetPaused()+s.GetCounts().GetQueued(), 0
	}
}

// sameStanding compares a state with that of the older version, which did not list leases.
func sameStanding(t *testing.T, what string, got, want *standing) {
	t.Helper()
	unsaid := protocmp.IgnoreFields(&outbidv1.Trial{}, "leases")
	same := func(part string, got, want any) {
		if diff := cmp.Diff(want, got, protocmp.Transform(), unsaid); diff != "" {
			t.Errorf("%s: the %s (-then +now):\n%s", what, part, diff)
		}
	}
	sweeps, trials := messages[outbidv1.Sweep](t, want.Sweeps), messages[outbidv1.Trial](t, want.Trials)
	seenAsPaused(sweeps, trials)
	same("sweeps", messages[outbidv1.Sweep](t, got.Sweeps), sweeps)
	same("trials", messages[outbidv1.Trial](t, got.Trials), trials)
	same("nodes", messages[outbidv1.Node](t, got.Nodes), messages[outbidv1.Node](t, want.Nodes))
	// Compare as JSON, in which a missing list equals an empty one.
	var g, w any
	for _, side := range []struct {
		from standing
		to   *any
	}{{*got, &g}, {*want, &w}} {
		side.from.Sweeps, side.from.Trials, side.from.Nodes, side.from.Snapshot = nil, nil, nil, nil
		text, err := json.Marshal(side.from)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(bytes.ReplaceAll(text, []byte("null"), []byte("[]")), side.to); err != nil {
			t.Fatal(err)
		}
	}
	same("state", g, w)
}

// messages decodes messages of any version.
func messages[M any, P interface {
	*M
	proto.Message
}](t *testing.T, all []json.RawMessage) []P {
	t.Helper()
	read := make([]P, len(all))
	for i, text := range all {
		read[i] = new(M)
		if err := protojson.Unmarshal(text, read[i]); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return read
}
