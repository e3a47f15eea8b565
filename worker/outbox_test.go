package worker

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func report(seq uint64) *outbidv1.Report {
	return &outbidv1.Report{Seq: seq, Step: int64(seq), Metrics: map[string]float64{"loss": 1}}
}

// Over a network that loses, repeats and reorders uplinks, every message arrives once and in order at a receiver that
// counts sequence numbers, and the sender's bookkeeping stays exact.
func TestOutboxDelivers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		o, f := newOutbox(), &forkMessages{ref: &outbidv1.ForkRef{Sweep: "s", LeaseId: 1}}
		now := time.Unix(0, 0)
		type uplink struct {
			first    uint64
			messages []*outbidv1.UplinkMessage
		}
		var wire []uplink
		var acks []uint64
		var got []uint64
		total := uint64(rapid.IntRange(1, 300).Draw(t, "messages"))
		added, acked := uint64(0), uint64(0)
		for round := 0; uint64(len(got)) < total || !o.empty(); round++ {
			if round > 20_000 {
				t.Fatalf("stuck after %d of %d", len(got), total)
			}
			lossy := round < 500 // then the network heals
			for ; added < total && rng.IntN(2) == 0; added++ {
				o.addReports(context.Background(), f, []*outbidv1.Report{report(added + 1)}, false)
			}
			if first, messages := o.next(now, 1<<20); len(messages) > 0 {
				for range 1 + rng.IntN(2) {
					if !lossy || rng.IntN(3) > 0 {
						wire = append(wire, uplink{first, messages})
					}
				}
			}
			rng.Shuffle(len(wire), func(i, j int) { wire[i], wire[j] = wire[j], wire[i] })
			if len(wire) > 0 && rng.IntN(2) == 0 {
				up := wire[0]
				wire = wire[1:]
				seen := uint64(len(got))
				for i, m := range up.messages {
					if seq := up.first + uint64(i); up.first <= seen+1 && seq == uint64(len(got))+1 {
						got = append(got, m.GetReport().GetSeq())
					}
				}
				acks = append(acks, uint64(len(got)))
			}
			if len(acks) > 0 && rng.IntN(2) == 0 {
				i := rng.IntN(len(acks))
				o.acked(acks[i], func(e entry) {
					acked++
					if e.report != acked {
						t.Fatalf("report %d acknowledged as number %d", e.report, acked)
					}
				})
				acks = append(acks[:i], acks[i+1:]...)
			}
			now = now.Add(time.Duration(rng.IntN(300)) * time.Millisecond)
		}
		for i, seq := range got {
			if seq != uint64(i)+1 {
				t.Fatalf("message %d is %d", i+1, seq)
			}
		}
		if o.bytes != 0 || o.flying != 0 || acked != total {
			t.Fatalf("%d bytes, %d in flight, %d of %d acknowledged at the end", o.bytes, o.flying, acked, total)
		}
	})
}

func TestOutboxGathers(t *testing.T) {
	t.Parallel()
	o, f, now := newOutbox(), &forkMessages{}, time.Unix(0, 0)
	send := func(want int, first uint64) {
		t.Helper()
		got, messages := o.next(now, 1<<20)
		if len(messages) != want || want > 0 && got != first {
			t.Fatalf("%d messages from %d, want %d from %d", len(messages), got, want, first)
		}
	}
	send(0, 0)
	for i := range uint64(maxFlights) {
		o.add(f, &outbidv1.UplinkMessage{})
		send(1, i+1) // at once
	}
	o.add(f, &outbidv1.UplinkMessage{})
	o.add(f, &outbidv1.UplinkMessage{})
	send(0, 0) // enough are in flight
	if d := o.resendIn(now); d != resendAfter {
		t.Errorf("again in %s", d)
	}
	o.acked(1, func(entry) {})
	send(2, maxFlights+1) // one was acknowledged: the messages that have gathered
	now = now.Add(resendAfter)
	send(maxFlights+1, 2) // all again
	o.acked(3, func(entry) {})
	send(0, 0)
	o.acked(maxFlights+2, func(entry) {})
	send(0, 0)
	o.acked(99, func(entry) {}) // of a message that does not exist
	if o.first != maxFlights+3 || !o.empty() || len(o.flights) != 0 {
		t.Errorf("first %d, %d flights", o.first, len(o.flights))
	}
	o.add(f, &outbidv1.UplinkMessage{})
	send(1, maxFlights+3)
	o.resend()
	send(1, maxFlights+3)
}

func TestOutboxBoundsAnUplink(t *testing.T) {
	t.Parallel()
	o, f := newOutbox(), &forkMessages{}
	for i := range 3 * maxUplink {
		o.addReports(t.Context(), f, []*outbidv1.Report{report(uint64(i) + 1)}, false)
	}
	if _, messages := o.next(time.Now(), 1<<20); len(messages) != maxUplink {
		t.Errorf("%d messages", len(messages))
	}
	o.reset()
	metrics := map[string]float64{}
	for i := range 1000 {
		metrics[string(rune('a'+i%26))+time.Duration(i).String()] = 1
	}
	for range 100 {
		o.addReports(t.Context(), f, []*outbidv1.Report{{Seq: 1, Metrics: metrics}}, false)
	}
	if _, messages := o.next(time.Now(), 1<<20); len(messages) < 2 || len(messages) > 40 {
		t.Errorf("%d large messages", len(messages))
	}
}

// A fork that has filled its part of the backlog waits with its reports, but not with urgent messages, until there is room
// or the fork is gone. Other forks on the node do not wait.
func TestOutboxBacklog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = maxBacklog / 2
		o, f := newOutbox(), &forkMessages{}
		reports := make([]*outbidv1.Report, most)
		for i := range reports {
			reports[i] = report(uint64(i) + 1)
		}
		o.addReports(t.Context(), f, reports, false)
		waited, gone := make(chan struct{}), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			o.addReports(t.Context(), f, []*outbidv1.Report{report(most + 1)}, false)
			close(waited)
		}()
		go func() {
			if o.addReports(ctx, f, []*outbidv1.Report{report(most + 2)}, false) {
				t.Error("a report of a fork that is gone was accepted beyond the limit")
			}
			close(gone)
		}()
		synctest.Wait()
		cancel()
		<-gone
		select {
		case <-waited:
			t.Error("a report was accepted beyond the limit")
		default:
		}
		o.add(f, &outbidv1.UplinkMessage{})
		if !o.addReports(ctx, &forkMessages{}, []*outbidv1.Report{report(1)}, false) {
			t.Error("the report of another fork was not accepted")
		}
		o.acked(100, func(entry) {})
		<-waited
		if n := len(o.entries); n != most-100+3 {
			t.Errorf("%d entries", n)
		}
	})
}

// A message that is not urgent is sent with the next one, or alone after a while.
func TestOutboxDelays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, f := newOutbox(), &forkMessages{ref: &outbidv1.ForkRef{Sweep: "s", LeaseId: 1}}
		began := func() *outbidv1.UplinkMessage {
			return &outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Began{Began: &outbidv1.ForkBegan{}}}
		}
		sent := func() int {
			_, messages := o.next(time.Now(), 1<<20)
			return len(messages)
		}
		o.addDelayed(f, began())
		if n := sent(); n != 0 {
			t.Fatalf("sent %d messages at once", n)
		}
		o.addReports(t.Context(), f, []*outbidv1.Report{report(1)}, false)
		<-o.wake
		if n := sent(); n != 2 {
			t.Fatalf("sent %d messages, want what was delayed with the report", n)
		}
		before := time.Now()
		o.addDelayed(f, began())
		<-o.wake
		if n := sent(); n != 1 || time.Since(before) != sendDelay {
			t.Fatalf("sent %d messages after %s", n, time.Since(before))
		}
		o.addDelayed(f, began())
		o.resend()
		<-o.wake
		if n := sent(); n != 4 {
			t.Fatalf("sent %d of all again", n)
		}
		pass(2 * sendDelay)
		select {
		case <-o.wake:
			t.Fatal("woken without anything to send")
		default:
		}
	})
}
