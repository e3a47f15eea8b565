package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// busyFake is a server with long names, many trials that hold devices, a round with reasons, and a failure.
func busyFake() *fakeService {
	f := newFake()
	f.list[1] = proto.CloneOf(f.list[1])
	f.list[1].State = outbidv1.SweepState_SWEEP_STATE_FAILED
	f.list[1].Reason = `given up, as trials only fail: program "bin/anneal": does not exist on this node (node local)`
	f.list[1].Notes = []*outbidv1.SweepNote{{
		Time: timestamppb.New(noon()), Level: "error", Trial: new(int32(1)),
		Text: `failed for good: program "bin/anneal": does not exist on this node (node local)`,
	}}
	f.list[0] = proto.CloneOf(f.list[0])
	f.list[0].Fairness = &outbidv1.Fairness{Rho: 0.95, ForecastSeconds: 69, AloneSeconds: 73, MeanSweeps: 2.5, Auction: &outbidv1.AuctionFairness{
		Round: 123, Time: timestamppb.New(noon()), Rho: 1.38, AloneSeconds: 73,
	}}
	lot := []*outbidv1.Lot{{Node: "a-machine", Type: "v100", Devices: 2}}
	f.round = &outbidv1.Round{
		Round: 123, Time: timestamppb.New(noon()), Policy: "themis", Reason: "auction among 1 of 1 apps",
		Auction: &outbidv1.Auction{
			Lots: lot, FairnessKnob: .8, Exact: true, Apps: 1, Rule: "the 20% with the worst rho, those that hold nothing first",
			Bidders: []*outbidv1.Bidder{{
				Sweep: "digits-2", Asked: true, Rho: 2.03, Bids: []*outbidv1.Bid{{Lots: lot, Rho: 1.38}}, Keeps: 1, Won: lot, RhoAfter: 1.38,
				Why: "1 of 1: holds nothing for 0.41 of its T_id",
			}},
		},
		Decisions: []*outbidv1.Decision{{
			Kind: "grant", Sweep: "digits-2", Trial: 29, LeaseId: 7, TermEnd: timestamppb.New(noon().Add(time.Minute)),
			Places: []*outbidv1.LeasePlace{{Node: "a-machine", Devices: []int32{0, 1}}},
			Reason: "won in the auction: rho 1.38 with its row, 2.03 with nothing; keeps 100% of the row",
		}},
	}
	return f
}

// TestListingsFitTheTerminal checks that no line of a listing exceeds the terminal's width, and that words are not cut.
func TestListingsFitTheTerminal(t *testing.T) {
	t.Parallel()
	url, _ := serveFake(t, busyFake(), "127.0.0.1:0")
	for name, args := range terminals() {
		for _, columns := range []int{60, 80, 120, 160} {
			app := newTestApp(strings.NewReader(""), map[string]string{"OUTBID_URL": url})
			app.term.out, app.term.size = true, func() (int, int) { return columns, 40 }
			code := app.run(t.Context(), args)
			for line := range strings.Lines(app.out.String()) {
				if n := textWidth(strings.TrimSuffix(line, "\n")); n > columns {
					t.Errorf("%v at %d columns has a line of %d: %s", args, columns, n, line)
				}
			}
			if columns <= 80 {
				checkGolden(t, fmt.Sprintf("terminal-%s-%d", name, columns), transcript(args, app, code))
			}
		}
	}
}

// terminals are the command lines of TestListingsFitTheTerminal.
func terminals() map[string][]string {
	return map[string][]string{
		"ls": {"ls"}, "ls-trials": {"ls", "digits-2"}, "nodes": {"nodes"}, "auction": {"auction"}, "rounds": {"auction", "--list"},
		"show": {"show", "digits-2"}, "show-failed": {"show", "digits-1"},
	}
}

func TestFoldKeepsEveryWord(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(strings.Fields(rapid.StringMatching(`([a-zä]{0,30} ?){0,12}`).Draw(t, "text")), " ")
		width := rapid.IntRange(1, 40).Draw(t, "width")
		lines := fold(text, width)
		for _, line := range lines {
			if textWidth(line) > width {
				t.Fatalf("%q is longer than %d", line, width)
			}
		}
		if got := strings.Join(lines, ""); strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(text, " ", "") {
			t.Fatalf("%q became %q", text, lines)
		}
	})
}

func TestColumnsAreLeftOutInOrder(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{0: "A B C LAST", 60: "A B C LAST", 34: "A C LAST", 24: "C LAST", 5: "C LAST"} {
		tab := table{header: []string{"A", "B", "C", "LAST"}, width: width, spare: []string{"B", "A"}}
		tab.rows = [][]string{{"aaaaaaaa", "bbbbbbbb", "cccccccc", "a long text at the end"}}
		var b strings.Builder
		tab.write(&b)
		header, _, _ := strings.Cut(b.String(), "\n")
		if got := strings.Join(strings.Fields(header), " "); got != want {
			t.Errorf("at %d columns: %q, want %q", width, got, want)
		}
	}
}

// TestShowTellsRhoOfSweepsThatTakeAMinute checks that show omits rho for a sweep of seconds, because process starts
// dominate it, but shows its times.
func TestShowTellsRhoOfSweepsThatTakeAMinute(t *testing.T) {
	t.Parallel()
	for alone, told := range map[float64]bool{0.08: false, 59: false, 60: true} {
		f := busyFake()
		f.list[0].Fairness.AloneSeconds, f.list[0].Fairness.Auction.AloneSeconds = alone, alone
		url, _ := serveFake(t, f, "127.0.0.1:0")
		app := newTestApp(strings.NewReader(""), map[string]string{"OUTBID_URL": url})
		if code := app.run(t.Context(), []string{"show", "digits-2"}); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		out := app.out.String()
		if strings.Contains(out, "rho 0.95") != told || strings.Contains(out, "rho 1.38") != told ||
			!strings.Contains(out, "forecast to end 1m09s after its submission") {
			t.Errorf("alone for %v s: want rho told %t:\n%s", alone, told, out)
		}
	}
}
