package terms

import (
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// SpeedOf converts a throughput of a spec or snapshot to the speed of a trial on some devices of a type. It returns
// false if the locality of the devices is not given. They are then taken to be as close together as possible.
func SpeedOf(t *outbidv1.Throughput) (cluster.Speed, bool) {
	apart, known := cluster.ParseLocality(t.GetSpread())
	return cluster.Speed{
		Type: t.GetType(), Devices: max(1, int(t.GetDevices())), Locality: apart, Rate: t.GetStepsPerSecond(),
	}, known
}

// ThroughputOf is the inverse of SpeedOf.
func ThroughputOf(s cluster.Speed) *outbidv1.Throughput {
	return &outbidv1.Throughput{Type: s.Type, Devices: int32(s.Devices), Spread: s.Locality.String(), StepsPerSecond: s.Rate}
}
