package endtoend

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// newer returns events that only a newer version writes, with the server's error for each.
func newer(t *testing.T) map[string]struct {
	events []*outbidv1.Event
	says   string
} {
	t.Helper()
	unknown := new(outbidv1.Event)
	if err := proto.Unmarshal([]byte{0xfa, 0x3f, 1, 0}, unknown); err != nil { // field 1023
		t.Fatal(err)
	}
	started := func(format uint32) *outbidv1.Event {
		return &outbidv1.Event{Kind: &outbidv1.Event_OrchestratorStarted{OrchestratorStarted: &outbidv1.OrchestratorStarted{
			Version: "v9.1", Format: format, Policy: &outbidv1.PolicySettings{Name: "themis"},
		}}}
	}
	return map[string]struct {
		events []*outbidv1.Event
		says   string
	}{
		"another format": {
			[]*outbidv1.Event{started(state.Format + 1)},
			fmt.Sprintf(`by version v9\.1: its format is %d, and this version reads formats up to %d; use the newer version`,
				state.Format+1, state.Format),
		},
		"an event of another kind": {
			[]*outbidv1.Event{started(state.Format), unknown},
			`an event of a kind that this version does not know \(1023\); use the newer version`,
		},
	}
}

// record opens the ledger in a NATS as a server with these keys.
func record(t *testing.T, cfg bus.ConnConfig) (*nats.Conn, *ledger.JetStream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	nc, err := bus.Connect(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	l, err := ledger.OpenJetStream(ctx, nc, ledger.Config{MustExist: true})
	if err != nil {
		t.Fatal(err)
	}
	return nc, l
}

// content returns every batch of a ledger.
func content(t *testing.T, l ledger.Ledger) (hashes []string, last *outbidv1.Batch) {
	t.Helper()
	err := l.Read(t.Context(), 1, func(b *outbidv1.Batch) error {
		hashes, last = append(hashes, fmt.Sprintf("%x", b.GetHash())), b
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return hashes, last
}

// appendAll appends events as the next batch.
func appendAll(t *testing.T, l ledger.Ledger, events []*outbidv1.Event) {
	t.Helper()
	_, last := content(t, l)
	l.Resume(last.GetSeq(), last.GetHash())
	if _, err := l.Append(t.Context(), last.GetTime().AsTime().Add(time.Second), events); err != nil {
		t.Fatal(err)
	}
}

// insideData opens the NATS in the data directory of a stopped server.
func insideData(t *testing.T, data string) (*bus.Server, bus.ConnConfig) {
	t.Helper()
	keys, err := identity.MakeKeys(filepath.Join(data, "keys"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := bus.StartServer(bus.ServerConfig{Dir: filepath.Join(data, "nats"), Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	who, err := keys.Orchestrator()
	if err != nil {
		t.Fatal(err)
	}
	return s, bus.ConnConfig{Server: s, User: who}
}

// refuses waits for a server to end with one line, and little else, that it cannot read the ledger.
func (p *proc) refuses(says string) {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatal("it runs")
	}
	text, _ := p.out.text()
	if code := p.cmd.ProcessState.ExitCode(); code == 0 {
		p.t.Error("it ended with exit code 0")
	}
	matched := regexp.MustCompile(`(?m)^.*a newer version of Outbid wrote this ledger.*`+says+`.*$`).FindAllString(text, -1)
	if len(matched) != 1 || strings.Contains(text, "panic") || strings.Contains(text, " serves at ") {
		p.t.Errorf("output:\n%s", text)
	}
}

// TestADowngradeIsRefused checks that servers reject a ledger of a newer version, and do not change it.
func TestADowngradeIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range newer(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			data := filepath.Join(dir, "data")
			first := serve(t, dir, "serve", "--nats-listen", "127.0.0.1:0")
			first.submit(job{name: "kept", mode: "well", tuner: random(10), trials: 1}.spec(t, t.TempDir()))
			first.stop()
			ns, cfg := insideData(t, data)
			_, l := record(t, cfg)
			appendAll(t, l, tc.events)
			before, _ := content(t, l)
			if err := ns.Close(); err != nil {
				t.Fatal(err)
			}
			start(t, dir, "serve", "--data", data, "--nats-listen", "127.0.0.1:0", "--api", "127.0.0.1:0").refuses(tc.says)
			start(t, dir, "up", "--data", data, "--api", "127.0.0.1:0", "--devices", "cpu:1").refuses(tc.says)
			ns, cfg = insideData(t, data)
			_, l = record(t, cfg)
			if after, _ := content(t, l); !slices.Equal(before, after) {
				t.Errorf("the ledger had %d batches and has %d", len(before), len(after))
			}
			if err := ns.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestAStandbyOfAnOlderVersionEnds checks that a standby ends as soon as a newer version leads, because it could not
// take over.
func TestAStandbyOfAnOlderVersionEnds(t *testing.T) {
	t.Parallel()
	for name, tc := range newer(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, url := t.TempDir(), startNATS(t)
			first := serveData(t, dir, "one", "serve", "--nats", url, "--data", filepath.Join(dir, "one"))
			keys := first.Info.Keys
			first.stop()
			// The test acts as the newer version: it leads but has not written yet.
			nc, l := record(t, bus.ConnConfig{URL: url})
			lead, err := bus.Campaign(t.Context(), nc, bus.Candidate{ID: "newer"})
			if err != nil {
				t.Fatal(err)
			}
			standby := start(t, dir, "serve", "--nats", url, "--standby", "--data", filepath.Join(dir, "two"), "--keys", keys, "--api",
				"127.0.0.1:0")
			standby.until("standing by")
			appendAll(t, l, tc.events)
			before, _ := content(t, l)
			standby.refuses(tc.says)
			// A standby that is started without a leader is rejected too.
			if err := lead.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			start(t, dir, "serve", "--nats", url, "--standby", "--data", filepath.Join(dir, "three"), "--keys", keys, "--api",
				"127.0.0.1:0").refuses(tc.says)
			if after, _ := content(t, l); !slices.Equal(before, after) {
				t.Errorf("the ledger had %d batches and has %d", len(before), len(after))
			}
		})
	}
}
