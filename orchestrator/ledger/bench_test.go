package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func reports(n int) []*outbidv1.Event {
	events := make([]*outbidv1.Event, n)
	for i := range events {
		events[i] = &outbidv1.Event{Kind: &outbidv1.Event_TrialReported{TrialReported: &outbidv1.TrialReported{
			Sweep: "digits-1", Trial: int32(i), LeaseId: uint64(i + 1),
			Report: &outbidv1.Report{
				Seq: uint64(i), Step: int64(i), Metrics: map[string]float64{"loss": 0.25, "accuracy": 0.75},
				Time: timestamppb.New(time.Unix(1.7e9, int64(i))), TrainSeconds: 1.5,
			},
		}}}
	}
	return events
}

// BenchmarkAppend makes one decision durable: encode, hash, send, fsync, acknowledge.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 32, 512} {
		b.Run(fmt.Sprintf("reports=%d", n), func(b *testing.B) {
			l := open(b, connect(b, bus.ConnConfig{Server: startServer(b, b.TempDir(), 0)}), ledger.Config{})
			events := reports(n)
			for b.Loop() {
				if _, err := l.Append(b.Context(), time.Now(), events); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkRead reads, verifies and decodes a whole ledger of 200,000 events in batches of n, like a restart.
func BenchmarkRead(b *testing.B) {
	const total = 200_000
	for _, n := range []int{8, 32, 512} {
		b.Run(fmt.Sprintf("batch=%d", n), func(b *testing.B) {
			l := open(b, connect(b, bus.ConnConfig{Server: startServer(b, b.TempDir(), 0)}), ledger.Config{})
			events := reports(n)
			for range total / n {
				if _, err := l.Append(b.Context(), time.Now(), events); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				seen := 0
				err := l.Read(b.Context(), 1, func(batch *outbidv1.Batch) error {
					events, err := ledger.Decode(batch)
					seen += len(events)
					return err
				})
				if err != nil || seen != total/n*n {
					b.Fatal(seen, err)
				}
			}
			b.ReportMetric(float64(total/n*n*b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkLoadSnapshot reads the state of about 500,000 trials, as a start does.
func BenchmarkLoadSnapshot(b *testing.B) {
	l := open(b, connect(b, bus.ConnConfig{Server: startServer(b, b.TempDir(), 0)}), ledger.Config{})
	if _, err := l.Append(b.Context(), time.Now(), reports(1)); err != nil {
		b.Fatal(err)
	}
	size := 128 << 20
	if err := l.SaveSnapshot(b.Context(), 1, make([]byte, size)); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(size))
	for b.Loop() {
		if _, data, err := l.LoadSnapshot(b.Context()); err != nil || len(data) != size {
			b.Fatal(len(data), err)
		}
	}
}
