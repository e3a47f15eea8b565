package terms_test

import (
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A speed survives the conversion to a snapshot and back, and a spec may leave out the usual values.
func TestSpeedsAreToldAndRead(t *testing.T) {
	t.Parallel()
	for apart := cluster.SameSlot; apart <= cluster.AcrossRacks; apart++ {
		was := cluster.Speed{Type: "v100", Devices: 4, Locality: apart, Rate: 2.5}
		if is, known := terms.SpeedOf(terms.ThroughputOf(was)); is != was || !known {
			t.Errorf("%v comes back as %v, known %t", was, is, known)
		}
	}
	got, known := terms.SpeedOf(&outbidv1.Throughput{StepsPerSecond: 3})
	if want, knows := cluster.ParseLocality(""); got != (cluster.Speed{Devices: 1, Locality: want, Rate: 3}) || known != knows {
		t.Errorf("what says only a rate is %v, known %t", got, known)
	}
	if _, known := terms.SpeedOf(&outbidv1.Throughput{Spread: "far"}); known {
		t.Error("it knows how far apart far is")
	}
}
