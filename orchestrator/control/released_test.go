package control_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

var update = flag.Bool("update", false, "write the states of the newest release's golden ledger")

// releases is the folder with one golden ledger of each release: ledger.jsonl.gz, which record.sh wrote with that
// release, and standing.json.gz, the states to which it led in that release.
const releases = "../ledger/testdata"

// standing is the state after a batch in a form that does not depend on how a version represents it.
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

// released returns the golden ledger of a release, and the states that it led to in that release.
func released(t *testing.T, release string) (*ledger.Lines, []*standing) {
	t.Helper()
	text := ledgertest.Unzipped(t, filepath.Join(releases, release, "ledger.jsonl.gz"))
	lines := ledger.NewLines(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil })
	states := filepath.Join(releases, release, "standing.json.gz")
	if version, err := os.ReadFile("../../VERSION"); err != nil {
		t.Fatal(err)
	} else if *update && release == strings.TrimSpace(string(version)) {
		record(t, lines, states)
	}
	var then []*standing
	if err := json.Unmarshal(ledgertest.Unzipped(t, states), &then); err != nil {
		t.Fatal(err)
	}
	return lines, then
}

// record writes the states of a ledger at eight batches, half of them with snapshots.
func record(t *testing.T, lines *ledger.Lines, path string) {
	t.Helper()
	const states = 8
	last := uint64(0)
	if err := lines.Read(t.Context(), 1, func(b *outbidv1.Batch) error { last = b.GetSeq(); return nil }); err != nil {
		t.Fatal(err)
	}
	var all []*standing
	for i := uint64(1); i <= states; i++ {
		c := replayed(t, upTo{Lines: lines, last: last * i / states})
		s := stand(t, c)
		if i%2 == 0 && i < states {
			var err error
			if s.Snapshot, err = c.Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, s)
	}
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	if err := errors.Join(json.NewEncoder(zip).Encode(all), zip.Close(), os.WriteFile(path, out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
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

func replayed(t *testing.T, l ledger.Ledger) *control.Core {
	t.Helper()
	set := settings()
	set.NewPolicy = func(p *outbidv1.PolicySettings) (policy.Policy, error) {
		return registry.Product().New(p.GetName(), policy.NewOptions(p.GetOptions()))
	}
	own, err := registry.Product().New("themis", nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := control.Restore(t.Context(), set, own, l, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The golden ledger of each release leads to the same states as in that release, from its start and from each of its
// snapshots.
func TestReleasedLedgersLeadToTheSameStates(t *testing.T) {
	if raceEnabled {
		t.Skip("it only computes: make test runs it without the race detector")
	}
	t.Parallel()
	folders, err := filepath.Glob(filepath.Join(releases, "*", "ledger.jsonl.gz"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("no golden ledgers: %v", err)
	}
	for _, path := range folders {
		release := filepath.Base(filepath.Dir(path))
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			leadsToTheSameStates(t, release)
		})
	}
}

func leadsToTheSameStates(t *testing.T, release string) {
	t.Helper()
	lines, then := released(t, release)
	for i, want := range then {
		c := replayed(t, upTo{Lines: lines, last: want.Seq})
		sameStanding(t, fmt.Sprintf("batch %d", want.Seq), stand(t, c), want)
		for _, from := range then[:i+1] {
			if from.Snapshot == nil {
				continue
			}
			c := replayed(t, upTo{Lines: lines, last: want.Seq, at: from.Seq, snapshot: from.Snapshot})
			sameStanding(t, fmt.Sprintf("batch %d, from the snapshot of %d", want.Seq, from.Seq), stand(t, c), want)
			again, err := c.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			c = replayed(t, upTo{Lines: lines, last: want.Seq, at: want.Seq, snapshot: again})
			sameStanding(t, fmt.Sprintf("batch %d, from a snapshot of this version", want.Seq), stand(t, c), want)
		}
	}
}

// sameStanding compares a state with that in the release.
func sameStanding(t *testing.T, what string, got, want *standing) {
	t.Helper()
	same := func(part string, got, want any) {
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s: the %s (-then +now):\n%s", what, part, diff)
		}
	}
	same("sweeps", messages[outbidv1.Sweep](t, got.Sweeps), messages[outbidv1.Sweep](t, want.Sweeps))
	same("trials", messages[outbidv1.Trial](t, got.Trials), messages[outbidv1.Trial](t, want.Trials))
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
