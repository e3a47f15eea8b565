package endtoend

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/bus"
)

// cutBlock truncates the first or the last file of the ledger in NATS's store.
func cutBlock(t *testing.T, natsDir string, last bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(natsDir, "store", "jetstream", "*", "streams", "OUTBID_LEDGER", "msgs", "*.blk"))
	if err != nil || len(files) == 0 || len(files) < 2 && !last {
		t.Fatalf("blocks: %v, %v", files, err)
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
	path := files[0]
	if last {
		path = files[len(files)-1]
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()-352<<10); err != nil {
		t.Fatal(err)
	}
}

// refuses starts a server that must fail, and returns its output.
func refuses(t *testing.T, dir string, args ...string) string {
	t.Helper()
	p := start(t, dir, args...)
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatal("it starts")
	}
	text, _ := p.out.text()
	return text
}

// TestACutLedgerIsNoticed checks that a truncated block of the ledger is detected at the start, at any position and
// however the server had ended. The error names the lost batches and the options. With --accept-ledger-loss the server
// continues with the rest, and later starts do not need the flag.
func TestACutLedgerIsNoticed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ last, killed bool }{
		"the last block, stopped": {last: true}, "the first block, killed": {killed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expectErrors(t, "given up because of --accept-ledger-loss")
			dir := t.TempDir()
			up := []string{"up", "--devices", "cpu:1", "--data", filepath.Join(dir, "data")}
			s := serve(t, dir, up[:3]...)
			reports := 80_000 // twice as many need two blocks
			if c.last {
				reports = 20_000
			}
			kept := s.fill("kept", reports, 20)
			s.fill("more", reports, 20)
			if c.killed {
				s.kill()
			} else {
				s.stop()
			}
			cutBlock(t, filepath.Join(dir, "data", "nats"), c.last)
			text := refuses(t, dir, append(up, "--api", "127.0.0.1:0")...)
			for _, want := range []string{"ledger batch ", "is damaged", "restore ", "--accept-ledger-loss"} {
				if !strings.Contains(text, want) {
					t.Errorf("it does not say %q:\n%s", want, text)
				}
			}
			s = serve(t, dir, append(up[:3], "--accept-ledger-loss")...)
			if got := s.sweep(kept); got.GetId() != kept {
				t.Errorf("the sweep before is %v", got)
			}
			if n := len(s.reported(kept)); n == 0 {
				t.Error("the sweep before has no reports")
			}
			again := s.fill("again", 1000, 20)
			s.kill()
			s = serve(t, dir, up[:3]...)
			if n := len(s.reported(again)); n != fillClients {
				t.Errorf("reports of %d trials after another start, want %d", n, fillClients)
			}
			s.stop()
			p := start(t, dir, "export", "--ledger", "l.jsonl", "--data", filepath.Join(dir, "data"))
			<-p.ended
			if text, _ := p.out.text(); p.cmd.ProcessState.ExitCode() != 0 {
				t.Errorf("the ledger that is left cannot be exported: %s", text)
			}
		})
	}
}

// TestALostEndIsNoticedOnAnotherMachine checks that a server that leads for the first time on its machine knows from
// NATS how far the ledger reached.
func TestALostEndIsNoticedOnAnotherMachine(t *testing.T) {
	t.Parallel()
	expectErrors(t, "given up because of --accept-ledger-loss")
	dir := t.TempDir()
	nats := filepath.Join(dir, "nats")
	n, url := natsProcess(t, dir, nats)
	s := serveData(t, dir, "one", "serve", "--nats", url, "--data", filepath.Join(dir, "one"))
	s.fill("kept", 80_000, 20)
	s.awaitFarMark(url)
	s.kill()
	n.kill()
	cutBlock(t, nats, true)
	_, url = natsProcess(t, dir, nats)
	two := []string{"serve", "--nats", url, "--data", filepath.Join(dir, "two"), "--keys", s.Info.Keys}
	if text := refuses(t, dir, append(two, "--api", "127.0.0.1:0")...); !strings.Contains(text, "when an orchestrator last led: it lost its end") {
		t.Errorf("output on another machine:\n%s", text)
	}
	p := startServer(t, dir, "two", append(two, "--accept-ledger-loss")...)
	p.ready()
	p.fill("again", 1000, 20)
	p.stop()
}

// natsProcess starts a NATS server in a separate process.
func natsProcess(t *testing.T, dir, data string) (n *proc, url string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n = startCommand(t, dir, "/usr/bin/env", "NATS_DIR="+data, self)
	n.until("nats is at ")
	text, _ := n.out.text()
	_, url, _ = strings.Cut(text, "nats is at ")
	url, _, _ = strings.Cut(url, "\n")
	return n, url
}

// awaitFarMark waits until NATS has the current mark of the ledger's end.
func (s *server) awaitFarMark(url string) {
	s.t.Helper()
	nc, err := bus.Connect(s.t.Context(), bus.ConnConfig{URL: url})
	if err != nil {
		s.t.Fatal(err)
	}
	defer nc.Close()
	notes, err := bus.OpenNotes(s.t.Context(), nc, 1)
	if err != nil {
		s.t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		s.t.Fatal(err)
	}
	poll(s.t, "the mark in NATS", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		stream, err := js.Stream(ctx, "OUTBID_LEDGER")
		if err != nil {
			return false
		}
		mark, err := notes.Get(ctx, bus.NoteLedgerEnd)
		if err != nil || len(mark) == 0 {
			return false
		}
		seq, _, _ := strings.Cut(strings.TrimLeft(string(mark), "0"), " ")
		return seq == strconv.FormatUint(stream.CachedInfo().State.LastSeq, 10)
	})
}
