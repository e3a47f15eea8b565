package plugin

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
)

// asPlugin is the first argument that makes the test binary a plugin; the second selects its behaviour.
const asPlugin = "serve-as-plugin"

func TestMain(m *testing.M) {
	if len(os.Args) >= 3 && os.Args[1] == asPlugin {
		servePlugin(os.Args[2], os.Args[3:])
		return
	}
	os.Exit(m.Run())
}

// servePlugin serves the built-in bidder with a flaw. "once FILE" crashes only the first time it runs.
func servePlugin(flaw string, args []string) {
	if flaw == "no plugin" {
		fmt.Fprintln(os.Stderr, "what is a bidder?")
		os.Exit(3)
	}
	if flaw == "once" {
		if _, err := os.Stat(args[0]); err == nil {
			flaw = ""
		} else if err := os.WriteFile(args[0], nil, 0o600); err == nil {
			flaw = "crash"
		}
	}
	Serve(Factory{Name: "test", Version: "1.2", Bidder: flawed(flaw)})
}

type flawed string

func (f flawed) Bid(o *bidder.Offer, s []*bidder.AppState) ([]bidder.Table, error) {
	tables, err := bidder.BuiltIn{}.Bid(o, s)
	if err != nil {
		return nil, err
	}
	first := &tables[0]
	spoil := func(g bidder.Gangs, rho float64) { first.Rows[0] = bidder.Row{Gangs: []bidder.Gangs{g}, Rho: rho} }
	switch f {
	case "crash":
		fmt.Fprintln(os.Stderr, "I divided by zero")
		os.Exit(2)
	case "panic":
		panic("at the disco")
	case "hang":
		select {}
	case "freeze":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		select {} // until it has stopped
	case "error":
		return nil, fmt.Errorf("I cannot count to %d", len(s))
	case "too much":
		spoil(bidder.Gangs{Count: 1, Machines: 1, Devices: 5, Type: "v100"}, 1)
	case "too many":
		spoil(bidder.Gangs{Count: math.MaxInt32, Machines: math.MaxInt32, Devices: math.MaxInt32, Type: "v100"}, 1)
	case "elsewhere":
		spoil(bidder.Gangs{Count: 1, Machines: 1, Devices: 1, Type: "v100", Node: "n9"}, 1)
	case "not a number":
		spoil(bidder.Gangs{Count: 1, Machines: 1, Devices: 1, Type: "v100"}, math.NaN())
	case "negative":
		first.Rho = -1
	case "oversized":
		for len(first.Rows) <= bidder.MaxRows {
			first.Rows = append(first.Rows, first.Rows[0])
		}
	case "declines":
		*first = bidder.Table{Refused: "not\ntoday"}
	}
	return tables, nil
}

func offer() *bidder.Offer {
	return &bidder.Offer{Round: 7, Lots: []bidder.Lot{
		{Node: "n1", Rack: "r1", Type: "v100", Free: 4, Slots: []int{2, 2}},
		{Node: "n2", Rack: "r1", Type: "v100", Free: 2, Slots: []int{2}},
		{Node: "n3", Rack: "r2", Type: "k80", Free: 3},
	}}
}

// states returns two sweeps that the bidder called name bids for.
func states(name string) []*bidder.AppState {
	settings, err := structpb.NewStruct(map[string]any{"minutes": 2})
	if err != nil {
		panic(err)
	}
	fast := &cluster.Speeds{Measured: []cluster.Speed{
		{Type: "v100", Devices: 1, Locality: cluster.SameMachine, Rate: 10}, {Type: "k80", Devices: 1, Rate: 1},
	}, S: [4]float64{1, 1, 1.5, 2}}
	stock := []bidder.Stock{{Type: "k80", Devices: 8}, {Type: "v100", Devices: 16}}
	return []*bidder.AppState{
		{
			App: "digits-1", Bidder: name, Settings: settings, Tuner: "asha", Weight: 1, Elapsed: 60, MeanApps: 2, Cluster: stock,
			Jobs: []bidder.Job{
				{Trial: 0, Done: 100, Until: 300, Total: 900, Min: 1, Max: 4, MultiNode: true, Speeds: fast},
				{
					Trial: 3, Total: 900, Min: 1, Max: 4, Types: []string{"v100"}, Exclude: []string{"cpu"}, Speeds: fast,
					Held: bidder.Holding{Type: "v100", Devices: 2, Machines: 1, Rate: 20},
				},
			},
			Demand: cluster.Demand{Min: 1, Max: 4}, Speeds: fast, TotalSteps: 900, StepsDone: 100, Finished: 1,
			Outlook: tuner.Outlook{Trials: 9, Steps: 3000, Rungs: []tuner.Rung{{UntilStep: 300, Trials: 9, Steps: 2700}}},
		},
		{
			App: "words-2", Bidder: name, Tuner: "random", Weight: 2, Elapsed: 5, MeanApps: 2, Cluster: stock, Free: []int{4, 0, 3},
			Jobs:   []bidder.Job{{Trial: 1, Total: 50, Min: 1, Max: 1, Lost: bidder.Holding{Type: "k80", Devices: 1, Machines: 1, Rate: 1}}},
			Demand: cluster.Demand{Min: 1, Max: 1}, TotalSteps: 50,
		},
	}
}

// patience limits every wait. It is long, because machines that run tests are busy.
const patience = 2 * time.Minute

// quick returns settings for tests. The deadline is long except for bidders that hang, because the machine may be
// busy.
func quick() Settings {
	return Settings{
		Deadline: patience, Start: patience, FirstPause: time.Millisecond, LastPause: 20 * time.Millisecond,
	}
}

// lines is a log that a test reads.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// open starts a pool of one bidder called it, and waits until it is up.
func open(t *testing.T, set Settings, args ...string) (*Pool, *lines) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return openCommand(t, set, append([]string{exe, asPlugin}, args...))
}

func openCommand(t *testing.T, set Settings, command []string) (*Pool, *lines) {
	t.Helper()
	log := &lines{}
	p, err := Open(t.Context(), map[string][]string{"it": command}, set, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, log
}

func up(t *testing.T, p *Pool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

func bid(t *testing.T, p *Pool, s []*bidder.AppState) []bidder.Table {
	t.Helper()
	tables, err := p.Bid(offer(), s)
	if err != nil {
		t.Fatal(err)
	}
	if len(tables) != len(s) {
		t.Fatalf("%d tables for %d states", len(tables), len(s))
	}
	return tables
}

func says(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q does not say %q", text, part)
		}
	}
}

func TestABidderBidsTheSameAcrossTheBoundary(t *testing.T) {
	t.Parallel()
	p, _ := open(t, quick(), "none")
	up(t, p)
	want, err := bidder.BuiltIn{}.Bid(offer(), states("it"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, bid(t, p, states("it"))); diff != "" {
		t.Errorf("tables (-here +there):\n%s", diff)
	}
}

func TestAppStatesCrossTheBoundaryWhole(t *testing.T) {
	t.Parallel()
	want := states("")
	gotOffer, got := fromRequest(toRequest(offer(), want))
	if diff := cmp.Diff(offer(), gotOffer); diff != "" {
		t.Errorf("offer (-sent +came):\n%s", diff)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("states (-sent +came):\n%s", diff)
	}
}

func TestABidderThatGoesWrongLosesItsBidAndIsStartedAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flaw string
		want []string
	}{
		{"crash", []string{"ended", "I divided by zero"}},
		{"panic", []string{"ended", "panic: at the disco"}},
		{"hang", []string{"more than 300ms"}},
		{"freeze", []string{"more than 300ms"}},
		{"error", []string{"I cannot count to 2"}},
		{"too much", []string{"digits-1", "1 machines with 5 v100", "does not have"}},
		{"too many", []string{"digits-1", "does not have"}},
		{"elsewhere", []string{"digits-1", "on n9", "does not have"}},
		{"not a number", []string{"digits-1", "rho NaN in row 0"}},
		{"negative", []string{"digits-1", "rho -1 without devices"}},
		{"oversized", []string{"digits-1", "65 rows, more than 64"}},
	} {
		t.Run(c.flaw, func(t *testing.T) {
			t.Parallel()
			set := quick()
			if c.flaw == "hang" || c.flaw == "freeze" {
				set.Deadline = 300 * time.Millisecond
			}
			p, log := open(t, set, c.flaw)
			for life := range 2 {
				up(t, p)
				for _, table := range bid(t, p, states("it")) {
					if life > 0 && strings.HasPrefix(table.Refused, "bidder it is down") {
						continue // it ended in between
					}
					says(t, table.Refused, append(c.want, "bidder it lost its bid")...)
					if table.Rows != nil || strings.Contains(table.Refused, "\n") {
						t.Errorf("the refused table is %+v", table)
					}
				}
				if strings.Count(log.String(), "lost its bid") == 0 {
					t.Errorf("the log does not name it:\n%s", log)
				}
			}
			says(t, log.String(), "bidder=it", "round=7", `sweeps="digits-1 words-2"`, "started again")
		})
	}
}

func TestABidderBidsAgainOnceItIsWell(t *testing.T) {
	t.Parallel()
	p, _ := open(t, quick(), "once", filepath.Join(t.TempDir(), "lived"))
	up(t, p)
	<-p.Up()
	says(t, bid(t, p, states("it"))[0].Refused, "lost its bid")
	<-p.Up()
	for _, table := range bid(t, p, states("it")) {
		if table.Refused != "" || len(table.Rows) == 0 {
			t.Errorf("it does not bid: %+v", table)
		}
	}
}

func TestNobodyWaitsForABidderThatIsDown(t *testing.T) {
	t.Parallel()
	set := quick()
	set.FirstPause, set.LastPause = time.Hour, time.Hour
	p, log := openCommand(t, set, []string{"false"})
	refused := bid(t, p, states("it"))[0].Refused
	says(t, refused, "bidder it is down")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !strings.Contains(log.String(), "a bidder is down") {
		k := p.supervisors["it"]
		k.mu.Lock()
		changed := k.changed
		k.mu.Unlock()
		if strings.Contains(log.String(), "a bidder is down") {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("the log does not say that it is down:\n%s", log)
		}
	}
	says(t, log.String(), "bidder=it", "does not start", "not an Outbid plugin")
}

func TestABidderMayDecline(t *testing.T) {
	t.Parallel()
	p, log := open(t, quick(), "declines")
	up(t, p)
	tables := bid(t, p, states("it"))
	if want := "it does not bid: not today"; tables[0].Refused != want {
		t.Errorf("refused because %q, want %q", tables[0].Refused, want)
	}
	if tables[1].Refused != "" || strings.Contains(log.String(), "lost") {
		t.Errorf("the other: %+v; log:\n%s", tables[1], log)
	}
}

func TestOneBiddersFlawIsNotTheOthers(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Open(t.Context(), map[string][]string{
		"good": {exe, asPlugin, "none"}, "bad": {exe, asPlugin, "negative"},
	}, quick(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	up(t, p)
	s := states("good")
	s[1].Bidder = "bad"
	third := states("nobody")[0]
	tables := bid(t, p, append(s, third))
	if tables[0].Refused != "" || len(tables[0].Rows) == 0 {
		t.Errorf("the good one has no bid: %+v", tables[0])
	}
	says(t, tables[1].Refused, "bidder bad lost its bid", "words-2")
	says(t, tables[2].Refused, `no bidder "nobody"`, "bad, good")
}

func TestOpenNamesAProgramThatIsNotThere(t *testing.T) {
	t.Parallel()
	for name, command := range map[string][]string{"is empty": nil, "no-such-program": {"no-such-program"}} {
		_, err := Open(t.Context(), map[string][]string{"it": command}, quick(), slog.New(slog.DiscardHandler))
		if err == nil {
			t.Fatalf("%q was opened", command)
		}
		says(t, err.Error(), "bidder it", name)
	}
}

// python returns the interpreter that has the SDK.
func python(t testing.TB) string {
	t.Helper()
	_ = os.Getenv("OUTBID_TEST_PROGRAMS") // so that go test uses no cached result of another SDK
	out, err := exec.Command("../../../.ci/python").Output()
	if err != nil {
		t.Skipf("no Python with the SDK: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// The bidder of examples/own-bidder, started as in its README.
func TestTheBidderOfTheExamples(t *testing.T) {
	t.Parallel()
	p, log := openCommand(t, quick(), []string{python(t), "../../../examples/own-bidder/bidder.py"})
	up(t, p)
	s := states("it")
	own, err := bidder.BuiltIn{}.Bid(offer(), s)
	if err != nil {
		t.Fatal(err)
	}
	tables := bid(t, p, s)
	// The first has two minutes: it bids for the fewest devices that suffice, if any do.
	first := tables[0]
	if first.Refused != "" || first.Rho != own[0].Rho || len(first.Rows) == 0 || len(first.Rows) > len(own[0].Rows) {
		t.Errorf("it bid %+v; the server's own bidder %+v", first, own[0])
	}
	// The second has no settings.
	says(t, tables[1].Refused, "agent.settings.minutes: is missing")
	if strings.Contains(log.String(), "lost its bid") {
		t.Errorf("log:\n%s", log)
	}
}

// Wrong results of a bidder in Python are handled like those of one in Go.
func TestBiddersInPythonThatGoWrong(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	for name, c := range map[string]struct{ body, want string }{
		"raises":  {"raise KeyError('lr')", "KeyError: 'lr'"},
		"crashes": {"print('bye'); os._exit(3)", `it said "bye"`},
		"hangs":   {"import time; time.sleep(1000)", "more than 1s"},
		"lies":    {"return plugin.Bid(2, 3, (plugin.Row(1, (plugin.Gangs('v100', 99),)),))", "99 v100"},
		"nan":     {"return plugin.Bid(float('nan'), 3)", "rho NaN without devices"},
		"types":   {"return 'everything'", "AttributeError"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "bidder.py")
			program := "import os\nfrom outbid import plugin\nclass A(plugin.Bidder):\n    def bid(self, offer, app):\n        " +
				c.body + "\nplugin.serve(A())\n"
			if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
				t.Fatal(err)
			}
			set := quick()
			if name == "hangs" {
				set.Deadline = time.Second
			}
			p, log := openCommand(t, set, []string{interpreter, file})
			up(t, p)
			says(t, bid(t, p, states("it"))[0].Refused, "bidder it lost its bid", c.want)
			says(t, log.String(), "a bidder lost its bid", "bidder=it")
			up(t, p)
		})
	}
}
