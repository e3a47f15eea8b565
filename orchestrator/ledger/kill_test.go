package ledger_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
)

const (
	killedDir   = "OUTBID_TEST_KILLED_DIR"
	killedBegin = "OUTBID_TEST_KILLED_BEGIN"
)

// TestKilledWriterProcess is not a test but the process that TestKillNineWhileStreamsRoll kills: a NATS server and a
// writer that prints what was acknowledged, saves snapshots and changes, and archives.
func TestKilledWriterProcess(t *testing.T) {
	t.Parallel()
	dir := os.Getenv(killedDir)
	if dir == "" {
		t.Skip("it is run by another test")
	}
	l := open(t, connect(t, bus.ConnConfig{Server: startSmallServer(t, dir)}), archiving(filepath.Join(dir, "archive"), 3))
	if texts, last := notesIn(t, l); len(texts) > 0 {
		l.Resume(last.GetSeq(), last.GetHash())
	}
	saved := newestIn(t, l)
	for i := 0; ; i++ {
		text := fmt.Sprint(os.Getenv(killedBegin), ".", i)
		if i%2 == 1 {
			mustAppend(t, l, text+inParts())
		} else {
			mustAppend(t, l, text)
		}
		fmt.Println("acknowledged", text)
		last, err := l.Last(testContext(t))
		switch {
		case err != nil:
		case i%4 == 3:
			err = l.SaveSnapshot(testContext(t), last, []byte(fmt.Sprint(last)+inParts()))
			if err == nil {
				_, err = l.Archive(testContext(t), everything())
			}
		case saved > 0:
			err = l.SaveChanges(testContext(t), saved, last, []byte(fmt.Sprint(saved, "-", last)+inParts()))
		}
		if err != nil {
			t.Fatal(err)
		}
		if saved = newestIn(t, l); saved != last && i >= 4 {
			t.Fatalf("the newest snapshot is of batch %d, want %d", saved, last)
		}
	}
}

// newestIn returns the batch of the newest snapshot with the changes since then. It prints if they do not belong together.
func newestIn(t *testing.T, l *ledger.JetStream) uint64 {
	t.Helper()
	all := strings.Fields(found(t, l))
	if len(all) == 0 {
		return 0
	}
	at := all[0]
	for _, c := range all[1:] {
		since, to, isChanges := strings.Cut(c, "-")
		if !isChanges || since != at {
			fmt.Println("broken", all)
			t.FailNow()
		}
		at = to
	}
	seq, err := strconv.ParseUint(at, 10, 64)
	if err != nil {
		fmt.Println("broken", all)
		t.FailNow()
	}
	return seq
}

// TestKillNineWhileStreamsRoll repeatedly kills the process with the NATS server and the writer, while every third
// batch begins another stream, and older streams are archived. Every acknowledged batch is there, once and in order.
func TestKillNineWhileStreamsRoll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	var acked []string
	for life := range 10 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestKilledWriterProcess$", "-test.timeout", "1m")
		cmd.Env = append(os.Environ(), killedDir+"="+dir, killedBegin+"="+strconv.Itoa(life))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(time.Hour, func() { _ = cmd.Process.Kill() })
		lines, until := bufio.NewScanner(out), 1+random.IntN(7)
		for n := 0; lines.Scan(); {
			if text, ok := strings.CutPrefix(lines.Text(), "broken "); ok {
				t.Errorf("seed %d, life %d: snapshot and changes are %s", seed, life, text)
			}
			if text, ok := strings.CutPrefix(lines.Text(), "acknowledged "); ok {
				acked = append(acked, text)
				if n++; n == until { // during one of the next appends
					kill.Reset(time.Duration(random.IntN(30_000)) * time.Microsecond)
				}
			}
		}
		_ = cmd.Wait()
		kill.Stop()
	}
	nc := connect(t, bus.ConnConfig{Server: startServer(t, dir, 0)})
	texts, _ := notesIn(t, open(t, nc, archiving(filepath.Join(dir, "archive"), 3)))
	rest := slices.Clone(acked)
	for i, text := range texts { // a batch whose acknowledgement was lost with the process may be there too
		texts[i] = strings.TrimSuffix(text, inParts())
		if len(rest) > 0 && rest[0] == texts[i] {
			rest = rest[1:]
		}
	}
	if len(rest) > 0 || len(acked) < 10 || len(texts) > len(acked)+10 || len(slices.Compact(slices.Sorted(slices.Values(texts)))) != len(texts) {
		t.Errorf("seed %d: of %d acknowledged batches %d are missing or not in order:\nacknowledged %v\nin the ledger %v", seed, len(acked), len(rest), acked, texts)
	}
	if pieces, err := filepath.Glob(filepath.Join(dir, "archive", "ledger", "*.zst")); len(pieces) < 3 || err != nil {
		t.Errorf("pieces of the archive: %v, %v; streams: %v", pieces, err, streamsOf(t, nc, ledger.DefaultStream))
	}
}
