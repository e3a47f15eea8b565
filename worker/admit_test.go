package worker

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// smallest is how many bytes of an uplink fit into the smallest message size that NATS may be configured with.
const smallest = limits.Message - 1<<10

// largeReport returns a report of about n bytes.
func largeReport(seq uint64, n int) *outbidv1.Report {
	return &outbidv1.Report{Seq: seq, Step: int64(seq), Metrics: map[string]float64{"loss": 1}, Attributes: map[string]string{"text": strings.Repeat("x", n)}}
}

// hostile returns reports that would stop a worker that does not check them.
func hostile() map[string]*outbidv1.Report {
	many := map[string]float64{}
	for i := range 10_000 {
		many[fmt.Sprint("metric ", i)] = 1
	}
	return map[string]*outbidv1.Report{
		"a large attribute":           largeReport(2, 70_000),
		"many metrics":                {Seq: 2, Step: 2, Metrics: many},
		"a long name":                 {Seq: 2, Step: 2, Metrics: map[string]float64{strings.Repeat("x", limits.Name+1): 1}},
		"a name that is not UTF-8":    {Seq: 2, Step: 2, Metrics: map[string]float64{"l\xf6ss": 1}},
		"a name with a control":       {Seq: 2, Step: 2, Metrics: map[string]float64{"loss\u202e": 1}},
		"an attribute's long name":    {Seq: 2, Step: 2, Attributes: map[string]string{strings.Repeat("x", limits.Name+1): "1"}},
		"an attribute that is binary": {Seq: 2, Step: 2, Attributes: map[string]string{"\xff": "1"}},
	}
}

// A report that cannot be sent fails only its own trial, with a reason.
func TestAReportThatCannotBeSentFailsItsTrialAlone(t *testing.T) {
	t.Parallel()
	for name, bad := range hostile() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, r *rig) {
				o := r.bus.orch
				r.bus.with(func() { r.bus.most = smallest })
				o.assign(assignment(1, 9, 0))
				x := <-r.starts
				o.assign(assignment(2, 9, 1))
				other := <-r.starts
				x.fork.Reports([]*outbidv1.Report{report(1), bad, report(3)})
				x.report(4) // ignored, because the trial is being ended
				other.report(1)
				o.awaitText(t, 1, "report 1\n", "ended FAILED at 1 ERROR: the report of step 2 has ")
				o.awaitText(t, 2, "report 1\n")
				<-x.killed
				if said := o.heard(1); strings.Contains(said, "report 3") || strings.Contains(said, "report 4") {
					t.Errorf("reports after the bad one were accepted:\n%s", said)
				}
			})
		})
	}
}

// Text that is not UTF-8 or too long nevertheless arrives in one line.
func TestTextOfATrialArrivesWhateverItIs(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"latin-1":      "K\xf6nnte nicht lesen",
		"half":         strings.Repeat("ä", limits.Detail)[:limits.Detail+1],
		"zero":         "\x00\x01\n\n\x7f",
		"binary":       string([]byte{0xff, 0xfe, 0x00, 0x80}),
		"endless":      strings.Repeat("x\xff", 1<<20),
		"turned round": "a\u202eb",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, r *rig) {
				o := r.bus.orch
				o.assign(assignment(1, 9, 0))
				x := <-r.starts
				x.fork.Note(text)
				x.fork.Reports([]*outbidv1.Report{{Seq: 1, Step: 1, Attributes: map[string]string{"a": text[:min(len(text), 1000)]}}})
				x.fork.Ended(&outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, Detail: text})
				o.awaitText(t, 1, "note ", "report 1", "ended FAILED")
			})
		})
	}
}

// Whatever is queued, each uplink fits into one message of NATS, and everything arrives.
func TestEveryUplinkFits(t *testing.T) {
	t.Parallel()
	checks := 0
	rapid.Check(t, func(rt *rapid.T) {
		if checks++; raceEnabled && checks > 10 {
			return // make test checks all of them without the race detector too
		}
		seed := rapid.Uint64().Draw(rt, "seed")
		most := rapid.SampledFrom([]int{smallest, 128 << 10, 1 << 20}).Draw(rt, "max_payload")
		forks := rapid.SampledFrom([]int{1, 50, 1000}).Draw(rt, "forks")
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 2))
			r := newRig(t)
			r.bus.with(func() { r.bus.most = most })
			o := r.bus.orch
			o.with(func() {
				for i := range forks { // they wait for the first one's device, and are listed
					a := assignment(uint64(i)+1, 0, 0)
					a.Fork.Sweep = "a-sweep-whose-name-is-as-long-as-people-make-them-1"
					o.assignments = append(o.assignments, a)
				}
			})
			x := <-r.starts
			n := 1 + rng.IntN(20)
			for seq := range n {
				x.fork.Reports([]*outbidv1.Report{largeReport(uint64(seq)+1, rng.IntN(limits.Report-100))})
			}
			o.await(t, "every report", func() bool { return strings.Contains(o.text(x.fork.ref.GetLeaseId()), fmt.Sprintf("report %d\n", n)) })
			o.await(t, "every fork", func() bool { return len(o.forks) == forks })
			r.bus.with(func() {
				if r.bus.refused > 0 {
					t.Errorf("%d uplinks were too large", r.bus.refused)
				}
			})
		})
	})
}

// A message that the connection refuses is found among others and dropped alone. Its trial fails and the queue
// continues.
func TestAMessageThatIsRefusedIsGivenUpAlone(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		poison := func(m *outbidv1.UplinkMessage) bool { return m.GetReport().GetStep() == 77 }
		r.bus.with(func() {
			r.bus.refuses = func(up *outbidv1.Uplink) bool { return slices.ContainsFunc(up.GetMessages(), poison) }
		})
		var all [3]*fakeTraining
		for i := range all {
			o.assign(assignment(uint64(i)+1, 0, int32(i)))
			all[i] = <-r.starts
		}
		for seq := range uint64(100) {
			for i, x := range all {
				if seq+1 != 77 || i == 1 {
					x.report(seq + 1)
				}
			}
		}
		o.awaitText(t, 1, "report 100\n")
		o.awaitText(t, 3, "report 100\n")
		// How many reports of the trial the worker has read by the time of the refusal is not determined.
		o.awaitText(t, 2, "ended FAILED at ", " ERROR: the report of step 77 is lost: the message cannot be sent")
		if said := o.heard(2); strings.Contains(said, "report 77\n") {
			t.Errorf("the dropped message was sent:\n%s", said)
		}
	})
}

// After a reconnect to a server with smaller messages, messages that fit are sent and the others fail their trials.
func TestAServerThatTakesLess(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		o.assign(assignment(1, 0, 0))
		x := <-r.starts
		o.assign(assignment(2, 0, 1))
		other := <-r.starts
		r.bus.setCut(true)
		x.fork.Reports([]*outbidv1.Report{largeReport(1, 50_000)})
		x.end(finished)
		other.report(1)
		other.fork.Note("a note")
		synctest.Wait()
		r.bus.with(func() { r.bus.most = 20_000 })
		r.bus.setCut(false)
		o.awaitText(t, 1, "ended FAILED at 1 ERROR: the report of step 1 is lost: it has 50,1")
		o.awaitText(t, 2, "report 1\n", "note a note")
		if said := o.heard(1); strings.Contains(said, "FINISHED") {
			t.Errorf("a trial whose last report was lost has finished:\n%s", said)
		}
	})
}

// Each cause for which an uplink cannot be sent is logged once, except a lost connection.
func TestWhyAnUplinkCannotBeSentIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		said := new(record)
		r := newRigLogging(t, slog.NewTextHandler(said, nil), func(error) {})
		r.bus.with(func() { r.bus.refuses = func(*outbidv1.Uplink) bool { return true } })
		pass(20 * time.Second)
		r.bus.with(func() { r.bus.refuses = nil })
		r.bus.orch.await(t, "introduction", func() bool { return r.bus.orch.info != nil })
		if n := said.count("cannot send an uplink to the orchestrator"); n != 1 {
			t.Errorf("logged %d times", n)
		}
	})
}

// Any message is either refused with a reason, or can be encoded and is small enough.
func TestAnyMessageIsAdmittedOrRefused(t *testing.T) {
	t.Parallel()
	text := rapid.Custom(func(t *rapid.T) string {
		return strings.Repeat(string(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "bytes")), rapid.SampledFrom([]int{1, 100, 10_000}).Draw(t, "times"))
	})
	rapid.Check(t, func(t *rapid.T) {
		o := newOutbox()
		s := text.Draw(t, "text")
		m := rapid.SampledFrom([]*outbidv1.UplinkMessage{
			{Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{Detail: s}}},
			{Kind: &outbidv1.UplinkMessage_Note{Note: &outbidv1.Note{Text: s}}},
			{Kind: &outbidv1.UplinkMessage_Consolidated{Consolidated: &outbidv1.Consolidated{Failure: s}}},
			{Kind: &outbidv1.UplinkMessage_Saved{Saved: &outbidv1.Checkpoint{Key: s}}},
			{Kind: &outbidv1.UplinkMessage_Report{Report: &outbidv1.Report{Attributes: map[string]string{s: s}}}},
			{Fork: &outbidv1.ForkRef{Sweep: s}},
		}).Draw(t, "message")
		m = proto.CloneOf(m)
		err := o.add(nil, m)
		if err != nil {
			if len(o.entries) > 0 || !strings.Contains(err.Error(), "bytes; at most") {
				t.Fatalf("%d entries, %v", len(o.entries), err)
			}
			switch m.GetKind().(type) {
			case *outbidv1.UplinkMessage_Ended, *outbidv1.UplinkMessage_Note, *outbidv1.UplinkMessage_Consolidated:
				t.Fatalf("a message with text to cut was refused: %v", err)
			}
			return
		}
		data, err := proto.Marshal(&outbidv1.Uplink{Messages: []*outbidv1.UplinkMessage{m}})
		if err != nil || len(data) != o.entries[0].bytes || len(data) > limits.Message {
			t.Fatalf("%v: %d bytes, counted as %d", err, len(data), o.entries[0].bytes)
		}
	})
}

// The estimated size of a report is never less than its encoded size, and hardly more.
func TestReportSize(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.MapOfN(rapid.StringN(0, 300, 300), rapid.Float64(), 0, 20)
		r := &outbidv1.Report{
			Seq: rapid.Uint64().Draw(t, "seq"), Step: rapid.Int64().Draw(t, "step"), TrainSeconds: rapid.Float64().Draw(t, "seconds"),
			Metrics: names.Draw(t, "metrics"), Attributes: rapid.MapOfN(rapid.String(), rapid.String(), 0, 5).Draw(t, "attributes"),
		}
		if rapid.Bool().Draw(t, "time") {
			r.Time = &timestamppb.Timestamp{Seconds: rapid.Int64().Draw(t, "at"), Nanos: rapid.Int32().Draw(t, "nanos")}
		}
		r.ProtoReflect().SetUnknown([]byte{0xfa, 0x7f, 0x01, 'x'}[:4*rapid.IntRange(0, 1).Draw(t, "unknown")])
		if n, size := reportSize(r), proto.Size(r); n < size || n > size+60 {
			t.Fatalf("%d bytes are estimated as %d", size, n)
		}
		f := &forkMessages{ref: &outbidv1.ForkRef{Sweep: rapid.StringN(0, 128, 128).Draw(t, "sweep"), LeaseId: rapid.Uint64().Draw(t, "lease")}}
		up := &outbidv1.Uplink{Messages: []*outbidv1.UplinkMessage{{Fork: f.ref, Kind: &outbidv1.UplinkMessage_Report{Report: r}}}}
		if n, size := admitReport(f, r), proto.Size(up); n < size || n > size+70 {
			t.Fatalf("%d bytes in an uplink are estimated as %d", size, n)
		}
	})
}

func TestCheckLabels(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range limits.LabelCount + 1 {
		many[fmt.Sprint(i)] = ""
	}
	for want, labels := range map[string]map[string]string{
		"":                           {"rack": "b", "größe": "a b"},
		"65 labels: at most 64":      many,
		"its name is not valid":      {"\xff": ""},
		`"rack": its value has 1025`: {"rack": strings.Repeat("x", limits.Label+1)},
		"its value has the control":  {"rack": "\x1b[1m"},
	} {
		got := ""
		if err := CheckLabels(labels); err != nil {
			got = err.Error()
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q", slices.Collect(maps.Keys(labels)), got, want)
		}
	}
}
