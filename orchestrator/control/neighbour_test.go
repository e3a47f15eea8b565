package control_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A server accepts workers of the same major version, with unknown fields and messages, and refuses others.
func TestNeighbouringVersions(t *testing.T) {
	t.Parallel()
	for worker, want := range map[string]string{
		"1.0.0-rc.1+abc": "",
		"1.0.0":          "",
		"1.7.2":          "",
		"dev":            "", // not a release
		"2.0.0":          "the server has version 1.1.0+abc and this worker 2.0.0",
		"0.9.3":          "the server has version 1.1.0+abc and this worker 0.9.3",
	} {
		t.Run(worker, func(t *testing.T) {
			t.Parallel()
			set := settings()
			set.Version = "1.1.0+abc"
			b := benchOf(t, control.NewCore(set, baseline.FIFO{}, state.New()), 1, sim.Sweep("s", "min", 1, sim.Tuner("random", nil)))
			up := &outbidv1.Uplink{
				Node: "n2", Boot: "b2", FirstSeq: 1, Messages: []*outbidv1.UplinkMessage{{}}, // of a kind that is not known
				Info: &outbidv1.NodeInfo{Version: worker, Devices: []*outbidv1.Device{{Type: "cpu"}}},
			}
			up.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "news"))
			b.step(control.Uplink{Message: up})
			var refused string
			for _, o := range b.out.Orders {
				if o.GetNode() == "n2" {
					refused = o.GetRefused()
				}
			}
			if (refused == "") != (want == "") || !strings.Contains(refused, want) {
				t.Errorf("refused: %q, want %q", refused, want)
			}
			if n := b.core.State().Nodes["n2"]; (n != nil) != (want == "") {
				t.Errorf("the node is %v", n)
			} else if n != nil && n.SeenSeq != 1 {
				t.Errorf("the unknown message was not taken: %d", n.SeenSeq)
			}
		})
	}
}
