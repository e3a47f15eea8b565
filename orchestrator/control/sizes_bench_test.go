package control_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// BenchmarkLargeConfigurations starts 1,000 trials with configurations of 60,000 bytes on 1,000 devices of ten nodes
// that join at once, on NATS servers with a message limit of 8 MiB and of 64 KiB. It measures from the submission
// until each node has been sent everything that its trials need.
func BenchmarkLargeConfigurations(b *testing.B) {
	for _, payload := range []int32{bus.MaxPayload, 64 << 10} {
		b.Run(fmt.Sprint(payload), func(b *testing.B) {
			server, err := bus.StartServer(bus.ServerConfig{Dir: b.TempDir(), MaxPayload: payload})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = server.Close() })
			nc, err := bus.Connect(b.Context(), bus.ConnConfig{Server: server, Name: "bench"})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(nc.Close)
			n := 0
			for b.Loop() {
				l, err := ledger.OpenJetStream(b.Context(), nc, ledger.Config{Stream: fmt.Sprint("B", n)})
				if err != nil {
					b.Fatal(err)
				}
				startThousand(b, l)
				n++
			}
		})
	}
}

func startThousand(b *testing.B, l ledger.Ledger) {
	b.Helper()
	orders := make(chan *outbidv1.Orders, 1000)
	loop, err := control.Open(b.Context(), control.Config{
		Settings: settings(), Policy: baseline.DRF{}, Ledger: l, History: &reports{}, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Send:   func(o *outbidv1.Orders) error { orders <- o; return nil },
		Delete: func(context.Context, string) error { return nil },
		Info:   func() *outbidv1.GetServerInfoResponse { return &outbidv1.GetServerInfoResponse{} },
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- loop.Run(ctx) }()
	spec := sim.Sweep("s", "min", 1000, sim.Tuner("random", map[string]int64{"max_steps": 9}))
	spec.GetSpace()["v"] = &outbidv1.Parameter{Kind: &outbidv1.Parameter_Constant{Constant: structpb.NewStringValue(strings.Repeat("v", 60_000))}}
	if _, err := loop.Submit(b.Context(), spec, "me", ""); err != nil {
		b.Fatal(err)
	}
	for i := range 10 {
		info := &outbidv1.NodeInfo{}
		for d := range 100 {
			info.Devices = append(info.Devices, &outbidv1.Device{Index: int32(d), Type: "cpu"})
		}
		loop.Uplink(&outbidv1.Uplink{Node: fmt.Sprint("n", i), Boot: "b", Info: info})
	}
	sent := map[uint64]*outbidv1.ForkStatus{}
	for len(sent) < 1000 {
		o := <-orders
		up := &outbidv1.Uplink{Node: o.GetNode(), Boot: "b"}
		for _, a := range o.GetAssignments() {
			id := a.GetFork().GetLeaseId()
			if a.GetBody() != nil {
				sent[id] = &outbidv1.ForkStatus{Fork: a.GetFork(), Version: a.GetVersion()}
			}
			if sent[id] != nil {
				up.Forks = append(up.Forks, sent[id])
			}
		}
		loop.Uplink(up)
	}
	stop()
	for {
		select {
		case <-orders:
			continue
		case err := <-ended:
			if err != nil {
				b.Fatal(err)
			}
			return
		}
	}
}
