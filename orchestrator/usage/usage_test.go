package usage_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/usage"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func day(n int) time.Time { return time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC) }

func submitted(sweep, tenant, user string, labels map[string]string) *outbidv1.Event {
	spec := &outbidv1.SweepSpec{Tenant: tenant, Labels: labels}
	return &outbidv1.Event{Kind: &outbidv1.Event_SweepSubmitted{SweepSubmitted: &outbidv1.SweepSubmitted{Sweep: sweep, Actor: user, Spec: spec}}}
}

func joined(node string, types ...string) *outbidv1.Event {
	info := &outbidv1.NodeInfo{Name: node}
	for i, t := range types {
		info.Devices = append(info.Devices, &outbidv1.Device{Index: int32(i), Type: t})
	}
	return &outbidv1.Event{Kind: &outbidv1.Event_NodeJoined{NodeJoined: &outbidv1.NodeJoined{Node: info}}}
}

func granted(sweep string, lease uint64, node string, devices ...int32) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_LeaseGranted{LeaseGranted: &outbidv1.LeaseGranted{
		Sweep: sweep, LeaseId: lease, Places: []*outbidv1.LeasePlace{{Node: node, Devices: devices}},
	}}}
}

func ended(sweep string, lease uint64) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_LeaseEnded{LeaseEnded: &outbidv1.LeaseEnded{Sweep: sweep, LeaseId: lease}}}
}

func deleted(sweep string) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_SweepDeleted{SweepDeleted: &outbidv1.SweepDeleted{Sweep: sweep}}}
}

type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func write(t fataler, l *ledger.Memory, at time.Time, events ...*outbidv1.Event) {
	t.Helper()
	if _, err := l.Append(context.Background(), at, events); err != nil {
		t.Fatal(err)
	}
}

func open(file string, l *ledger.Memory, now time.Time, log *bytes.Buffer) *usage.Book {
	return usage.Open(usage.Config{File: file, Ledger: l.Read, Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(log, nil))})
}

func all(string) bool { return true }

func sum(t fataler, b *usage.Book, q usage.Query) *usage.Table {
	t.Helper()
	if q.Sees == nil {
		q.Sees = all
	}
	got, err := b.Sum(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// rows formats a table: the values, the device time and the cost.
func rows(t *usage.Table) []string {
	var out []string
	for _, r := range t.Rows {
		cost := "unpriced"
		if !r.Unpriced {
			cost = strconv.FormatFloat(r.Cost, 'g', -1, 64)
		}
		out = append(out, strings.Join(r.Values, " ")+": "+strconv.FormatFloat(r.DeviceSeconds(), 'f', -1, 64)+" s, "+cost)
	}
	return out
}

// november returns a ledger with two tenants. One lease has two types, one still runs.
func november(t fataler) *ledger.Memory {
	l := ledger.NewMemory()
	write(t, l, day(1), joined("a", "h100", "h100", "k80"), joined("b", "k80"))
	write(t, l, day(1), submitted("s-1", "vision", "ada", map[string]string{"project": "cats"}), submitted("s-2", "", "bob", nil))
	write(t, l, day(2), granted("s-1", 1, "a", 0, 1, 2), granted("s-2", 2, "b", 0))
	write(t, l, day(3), ended("s-1", 1))
	write(t, l, day(3), deleted("s-1"), joined("a", "v100"))
	return l
}

func TestUsageByEachColumn(t *testing.T) {
	t.Parallel()
	const daySeconds = "86400"
	prices := usage.Prices{DeviceHour: map[string]float64{"h100": 2, "k80": .5}}
	for name, c := range map[string]struct {
		q    usage.Query
		want []string
	}{
		"nothing":       {usage.Query{Prices: prices}, []string{": 518400 s, 144"}},
		"tenant":        {usage.Query{By: []string{"tenant"}, Prices: prices}, []string{"default: 259200 s, 36", "vision: 259200 s, 108"}},
		"type and user": {usage.Query{By: []string{"type", "user"}}, []string{"h100 ada: 172800 s, unpriced", "k80 ada: 86400 s, unpriced", "k80 bob: 259200 s, unpriced"}},
		"label":         {usage.Query{By: []string{"label.project"}, Prices: usage.Prices{DeviceHour: map[string]float64{"*": 1}}}, []string{": 259200 s, 72", "cats: 259200 s, 72"}},
		"an unknown price": {
			usage.Query{By: []string{"tenant"}, Prices: usage.Prices{DeviceHour: map[string]float64{"k80": 1}}},
			[]string{"default: 259200 s, 72", "vision: 259200 s, unpriced"},
		},
		"from noon":    {usage.Query{Since: day(2).Add(12 * time.Hour), Until: day(3), By: []string{"tenant"}}, []string{"default: 43200 s, unpriced", "vision: 129600 s, unpriced"}},
		"before":       {usage.Query{Until: day(2)}, nil},
		"to the past":  {usage.Query{Since: day(4), Until: day(5), By: []string{"user"}}, []string{"bob: " + daySeconds + " s, unpriced"}},
		"the future":   {usage.Query{Since: day(4), Until: day(30), By: []string{"user"}}, []string{"bob: " + daySeconds + " s, unpriced"}},
		"only default": {usage.Query{By: []string{"tenant"}, Sees: func(t string) bool { return t == "default" }}, []string{"default: 259200 s, unpriced"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := sum(t, open(filepath.Join(t.TempDir(), "usage"), november(t), day(5), &bytes.Buffer{}), c.q)
			if diff := cmp.Diff(c.want, rows(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestColumnsAndPricesAreChecked(t *testing.T) {
	t.Parallel()
	for _, by := range [][]string{{"node"}, {"label."}, {"user", "user"}} {
		if usage.CheckColumns(by) == nil {
			t.Errorf("%q is allowed", by)
		}
	}
	for _, text := range []string{"device_hour: {h100: -1}", "device_hour: {h100: .nan}", "hour: {}", "device_hour: [", "device_hour: {h100: many}"} {
		if _, err := usage.ParsePrices([]byte(text)); err == nil {
			t.Errorf("%q is allowed", text)
		}
	}
	file := filepath.Join(t.TempDir(), "prices.yaml")
	put := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("currency: EUR\ndevice_hour: {h100: 2, '*': .5}\n")
	f, err := usage.OpenPrices(file)
	if err != nil {
		t.Fatal(err)
	}
	put("device_hour: {h100: -2}")
	if _, err := f.Reload(); err == nil || f.Prices().Currency != "EUR" {
		t.Errorf("a bad file gave %v and %v", err, f.Prices())
	}
	put("currency: USD\ndevice_hour: {h100: 2}")
	if changed, err := f.Reload(); err != nil || !changed || f.Prices().Currency != "USD" {
		t.Errorf("a new file gave %v, %v and %v", changed, err, f.Prices())
	}
}

// lease is a lease as the test accounts for it: its end is zero while it runs.
type lease struct {
	values   map[string]string
	types    []string
	from, to time.Time
}

// nanos returns the device time of a lease in a period.
func (l *lease) nanos(kind string, since, until time.Time) *big.Int {
	from, to := l.from, l.to
	if to.IsZero() || to.After(until) {
		to = until
	}
	if from.Before(since) {
		from = since
	}
	n := 0
	for _, t := range l.types {
		if t == kind || kind == "" {
			n++
		}
	}
	if !from.Before(to) {
		return new(big.Int)
	}
	return new(big.Int).Mul(big.NewInt(int64(to.Sub(from))), big.NewInt(int64(n)))
}

// randomLedger writes random sweeps and leases, and returns the leases and the last time.
func randomLedger(t *rapid.T, l *ledger.Memory, between func(time.Time)) ([]*lease, time.Time) {
	var leases []*lease
	sweeps, nodes, now := map[string]map[string]string{}, map[string][]string{}, day(1)
	pick := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
	for i := range rapid.IntRange(1, 60).Draw(t, "events") {
		now = now.Add(time.Duration(rapid.Int64Range(0, int64(40*time.Hour)).Draw(t, "passed")))
		switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
		case what == 0 || len(nodes) == 0:
			name, types := pick("node", "a", "b"), rapid.SliceOfN(rapid.SampledFrom([]string{"h100", "k80", ""}), 1, 4).Draw(t, "types")
			nodes[name] = types
			write(t, l, now, joined(name, types...))
		case what == 1 || len(sweeps) == 0:
			id := "s-" + strconv.Itoa(i)
			v := map[string]string{"tenant": pick("tenant", "red", "blue", "default"), "user": pick("user", "ada", "bob", ""), "label.x": pick("label", "1", "2", "")}
			labels := map[string]string{"y": pick("another label", "1", "2")}
			if v["label.x"] != "" {
				labels["x"] = v["label.x"]
			}
			sweeps[id] = v
			write(t, l, now, submitted(id, strings.TrimPrefix(v["tenant"], "default"), v["user"], labels))
		case what == 2:
			id := pick("deleted", sorted(sweeps)...)
			delete(sweeps, id)
			write(t, l, now, deleted(id))
		case what < 6:
			running := slices.DeleteFunc(slices.Clone(leases), func(l *lease) bool { return !l.to.IsZero() })
			if len(running) > 0 {
				ending := rapid.SampledFrom(running).Draw(t, "ending")
				ending.to = now
				write(t, l, now, ended("", uint64(slices.Index(leases, ending)+1)))
			}
		default:
			node := pick("its node", sorted(nodes)...)
			id := pick("its sweep", sorted(sweeps)...)
			g := &lease{from: now, values: sweeps[id]}
			var devices []int32
			for d, kind := range nodes[node] {
				if rapid.Bool().Draw(t, "held") {
					devices, g.types = append(devices, int32(d)), append(g.types, kind)
				}
			}
			leases = append(leases, g)
			write(t, l, now, granted(id, uint64(len(leases)), node, devices...))
		}
		between(now)
	}
	return leases, now
}

func sorted[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// The sum over any grouping and period equals what the leases cost according to their events.
func TestUsageEqualsTheLeasesOfTheLedger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		file := filepath.Join(dir, "usage")
		_ = os.Remove(file)
		l := ledger.NewMemory()
		var logged bytes.Buffer
		book := open(file, l, day(1), &logged)
		leases, now := randomLedger(rt, l, func(now time.Time) {
			if rapid.IntRange(0, 9).Draw(rt, "asked meanwhile") == 0 { // the next answer continues from here
				sum(rt, book, usage.Query{})
			}
		})
		now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(rt, "after")))
		if rapid.Bool().Draw(rt, "restart") {
			book = open(file, l, now, &logged)
		} else {
			book.Now = func() time.Time { return now }
		}
		by := slices.DeleteFunc([]string{"label.x", "tenant", "type", "user"}, func(string) bool { return rapid.Bool().Draw(rt, "left out") })
		since := day(1).Add(time.Duration(rapid.Int64Range(-1e9, int64(60*24*time.Hour)).Draw(rt, "since")))
		until := since.Add(time.Duration(rapid.Int64Range(1, int64(90*24*time.Hour)).Draw(rt, "long")))
		got := sum(rt, book, usage.Query{Since: since, Until: until, By: by})
		if until.After(now) {
			until = now
		}
		want, total := map[string]*big.Int{}, new(big.Int)
		for _, l := range leases {
			for _, kind := range []string{"h100", "k80", "-"} {
				n := l.nanos(strings.Trim(kind, "-"), since, until)
				if kind == "-" { // "" is all types: subtract the others
					n = l.nanos("", since, until)
					n.Sub(n, l.nanos("h100", since, until)).Sub(n, l.nanos("k80", since, until))
				}
				if n.Sign() == 0 {
					continue
				}
				var key []string
				for _, c := range by {
					key = append(key, map[bool]string{true: strings.Trim(kind, "-"), false: l.values[c]}[c == "type"])
				}
				k := strings.Join(key, "|")
				if want[k] == nil {
					want[k] = new(big.Int)
				}
				want[k].Add(want[k], n)
				total.Add(total, n)
			}
		}
		have := map[string]*big.Int{}
		for _, r := range got.Rows {
			have[strings.Join(r.Values, "|")] = nanosOf(r)
		}
		if diff := cmp.Diff(want, have, cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 })); diff != "" {
			rt.Fatalf("by %v (-want +got):\n%s", by, diff)
		}
		if nanosOf(&got.Total).Cmp(total) != 0 {
			rt.Fatalf("the total is %v, want %v ns", nanosOf(&got.Total), total)
		}
		if logged.Len() > 0 {
			rt.Fatalf("logged %s", logged.String())
		}
	})
}

func nanosOf(r *usage.Row) *big.Int {
	n := new(big.Int).Mul(big.NewInt(r.Seconds), big.NewInt(1e9))
	return n.Add(n, big.NewInt(r.Nanos))
}

func TestTheIndexContinuesAfterARestartOrIsMadeAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "usage")
	l, q := november(t), usage.Query{By: []string{"tenant", "type"}}
	for range 10_000 {
		write(t, l, day(3), &outbidv1.Event{Kind: &outbidv1.Event_UplinkSeen{UplinkSeen: &outbidv1.UplinkSeen{}}})
	}
	var logged bytes.Buffer
	first := open(file, l, day(5), &logged)
	want := rows(sum(t, first, q))
	if err := first.Save(); err != nil {
		t.Fatal(err)
	}
	read := 0
	second := open(file, l, day(5), &logged)
	inner := second.Ledger
	second.Ledger = func(ctx context.Context, from uint64, f func(*outbidv1.Batch) error) error {
		return inner(ctx, from, func(b *outbidv1.Batch) error { read++; return f(b) })
	}
	write(t, l, day(4), ended("s-2", 2))
	want[0] = "default k80: 172800 s, unpriced"
	if diff := cmp.Diff(want, rows(sum(t, second, q))); diff != "" || read != 2 {
		t.Errorf("after a restart, read %d batches (-want +got):\n%s", read, diff)
	}
	if logged.Len() > 0 {
		t.Errorf("logged %s", logged.String())
	}
	for name, other := range map[string]*ledger.Memory{"a shorter ledger": november(t), "another ledger": longer(t)} {
		logged.Reset()
		if got := rows(sum(t, open(file, other, day(5), &logged), usage.Query{By: []string{"user"}})); len(got) != 2 || got[1] != "bob: 259200 s, unpriced" {
			t.Errorf("%s: %v", name, got)
		}
		if !strings.Contains(logged.String(), "of another ledger") {
			t.Errorf("%s: logged %q", name, logged.String())
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	logged.Reset()
	if got := rows(sum(t, open(file, l, day(5), &logged), q)); !cmp.Equal(got, want) || !strings.Contains(logged.String(), "checksum") {
		t.Errorf("a damaged file: %v, logged %q", got, logged.String())
	}
}

// longer returns another ledger, with more batches.
func longer(t fataler) *ledger.Memory {
	l := november(t)
	for range 20_000 {
		write(t, l, day(4), &outbidv1.Event{Kind: &outbidv1.Event_UplinkSeen{UplinkSeen: &outbidv1.UplinkSeen{Seq: 7}}})
	}
	return l
}

func TestAnAnswerDoesNotHaveMoreThanTenThousandRows(t *testing.T) {
	t.Parallel()
	l := ledger.NewMemory()
	write(t, l, day(1), joined("a", "h100"))
	for i := range 10_001 {
		id := strconv.Itoa(i)
		write(t, l, day(2), submitted(id, "", "", map[string]string{"x": id}), granted(id, uint64(i+1), "a", 0))
	}
	b := open(filepath.Join(t.TempDir(), "usage"), l, day(3), &bytes.Buffer{})
	_, err := b.Sum(context.Background(), usage.Query{By: []string{"label.x"}, Sees: all})
	if _, ok := errors.AsType[usage.TooManyRowsError](err); !ok {
		t.Errorf("got %v", err)
	}
	got := sum(t, b, usage.Query{By: []string{"tenant"}, Prices: usage.Prices{DeviceHour: map[string]float64{"*": 1}}})
	if len(got.Rows) != 1 || math.Abs(got.Total.Cost-24*10_001) > 1e-6 {
		t.Errorf("got %v", rows(got))
	}
}

// TestAnEndIsNotDelayedByReads checks that a book ends although a query waits for a ledger that does not answer, and
// another one for the first.
func TestAnEndIsNotDelayedByReads(t *testing.T) {
	t.Parallel()
	reads := make(chan struct{}, 2)
	book := usage.Open(usage.Config{
		File: filepath.Join(t.TempDir(), "usage"), Now: func() time.Time { return day(2) }, Log: slog.New(slog.DiscardHandler),
		Ledger: func(ctx context.Context, _ uint64, _ func(*outbidv1.Batch) error) error {
			reads <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		},
	})
	answers := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := book.Sum(context.Background(), usage.Query{Since: day(1)})
			answers <- err
		}()
	}
	<-reads
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := book.Sum(late, usage.Query{Since: day(1)}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled query that waits for its turn: %v", err)
	}
	if err := book.Follow(late); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-answers; !errors.Is(err, state.ErrStopping) {
			t.Errorf("a query at the end of the book: %v, want %v", err, state.ErrStopping)
		}
	}
}
