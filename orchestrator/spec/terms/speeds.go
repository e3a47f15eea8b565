package terms

import (
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// SpeedOf is a throughput as a spec tells it, or a snapshot keeps it: within, one type says how fast a trial trains on some
// devices. How far apart these are is not known if false: then they are taken to be as close as can be.
func SpeedOf(t *outbidv1.Throughput) (cluster.Speed, bool) {
	apart, known := cluster.ParseLocality(t.GetSpread())
	return cluster.Speed{
		Type: t.GetType(), Devices: max(1, int(t.GetDevices())), Locality: apart, Rate: t.GetStepsPerSecond(),
	}, known
}

// ThroughputOf is a speed as specs tell and snapshots keep it.
func ThroughputOf(s cluster.Speed) *outbidv1.Throughput {
	return &outbidv1.Throughput{Type: s.Type, Devices: int32(s.Devices), Spread: s.Locality.String(), StepsPerSecond: s.Rate}
}
