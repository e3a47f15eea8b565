package bus

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// put stores chunks at once and in this order.
func put(t *testing.T, l *Logs, chunks ...*outbidv1.LogChunk) {
	t.Helper()
	for _, c := range chunks {
		if err := publish(l.nc, LogSubject(c), c, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.nc.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
}

// stored waits until the stream has the given number of messages, because output is not acknowledged.
func stored(t *testing.T, l *Logs, stream string, messages uint64) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ctx := testContext(t); ; {
		s, err := l.js.Stream(ctx, stream)
		if err != nil {
			t.Fatalf("waiting for %d messages in %s: %v", messages, stream, err)
		}
		if s.CachedInfo().State.LastSeq >= messages {
			return
		}
		<-tick.C
	}
}

func ofTenant(tenant, sweep, text string) *outbidv1.LogChunk {
	return &outbidv1.LogChunk{
		Fork: &outbidv1.ForkRef{Sweep: sweep}, Node: "n1", Tenant: tenant, Stream: "stdout", Data: []byte(text),
	}
}

func (l *Logs) linesOfTail(t *testing.T, tenant, sweep string, trial *int32, lines int) (text []string, next uint64) {
	t.Helper()
	chunks, next, err := l.Tail(testContext(t), tenant, sweep, trial, lines)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range chunks {
		text = append(text, slices.Collect(strings.Lines(string(c.GetData())))...)
	}
	return text, next
}

func TestATailIsTheEndOfWhatThereIs(t *testing.T) {
	t.Parallel()
	l, _ := openLogs(t)
	if text, next := l.linesOfTail(t, "vision", "digits-1", nil, 3); len(text) != 0 || next != 1 {
		t.Errorf("of nothing: %q, then %d", text, next)
	}
	var all [2][]string
	var chunks []*outbidv1.LogChunk
	for i := range 3000 { // trial 1 prints rarely
		trial := int32(0)
		if i%700 == 5 {
			trial = 1
		}
		text := ""
		for j := range 1 + i%3 {
			line := fmt.Sprintf("%d.%d\n", i, j)
			text += line
			all[trial] = append(all[trial], line)
		}
		chunks = append(chunks, chunk(trial, "stdout", text))
	}
	put(t, l, chunks...)
	stored(t, l, LogStream("vision"), 3000)
	for trial := range int32(2) {
		for _, n := range []int{1, 2, 3, 7, 100, 1000, 100_000} {
			text, next := l.linesOfTail(t, "vision", "digits-1", &trial, n)
			want := all[trial][max(0, len(all[trial])-n):]
			if len(text) < len(want) || len(text) > len(want)+2 || !slices.Equal(text[len(text)-len(want):], want) || next != 3001 {
				t.Errorf("the last %d lines of trial %d: %d lines, then %d", n, trial, len(text), next)
			}
		}
	}
	if text, _ := l.linesOfTail(t, "vision", "digits-1", nil, 5); !strings.HasPrefix(text[len(text)-1], "2999.") {
		t.Errorf("of all trials: %q", text)
	}
	_, next := l.linesOfTail(t, "vision", "digits-1", nil, 1)
	put(t, l, chunk(0, "stdout", "more\n"))
	stored(t, l, LogStream("vision"), 3001)
	var after []string
	err := l.Read(testContext(t), "vision", "digits-1", nil, next, false, func(c *outbidv1.LogChunk) error {
		after = append(after, string(c.GetData()))
		return nil
	})
	if err != nil || !slices.Equal(after, []string{"more\n"}) {
		t.Errorf("what came after the tail: %q, %v", after, err)
	}
}

func TestNobodysOutputPushesOutAnothers(t *testing.T) {
	t.Parallel()
	l, _ := openLogs(t)
	if err := l.Reserve(testContext(t), "speech", 4<<20); err != nil {
		t.Fatal(err)
	}
	put(t, l, ofTenant("vision", "quiet-1", "said once\n"))
	noise := bytes.Repeat([]byte("0123456789abcde\n"), logChunkBytes/16)
	for i := range 200 { // 12.5 MiB, which do not compress
		for j := range noise {
			noise[j] = byte('a' + (i*31+j*j+j>>7)%26)
		}
		put(t, l, ofTenant("speech", "loud-1", string(noise)+fmt.Sprintf("\n%d\n", i)))
	}
	stored(t, l, LogStream("vision"), 1)
	stored(t, l, LogStream("speech"), 200)
	if text, _ := l.linesOfTail(t, "vision", "quiet-1", nil, 10); len(text) != 1 || text[0] != "said once\n" {
		t.Errorf("the quiet one's output is %q", text)
	}
	if text, _ := l.linesOfTail(t, "speech", "loud-1", nil, 1); text[len(text)-1] != "199\n" {
		t.Errorf("the loud one's last line is %.20q", text[len(text)-1])
	}
	stream, err := l.js.Stream(testContext(t), LogStream("speech"))
	if err != nil {
		t.Fatal(err)
	}
	if state := stream.CachedInfo().State; state.Bytes > 4<<20 || state.FirstSeq == 1 {
		t.Errorf("the loud one keeps %d bytes from message %d on", state.Bytes, state.FirstSeq)
	}
}
