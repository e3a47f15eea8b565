//go:build !linux || !cgo

package inventory

import outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"

// findGPUs finds no GPUs, because the driver's library can only be loaded with cgo.
func findGPUs() ([]*outbidv1.Device, []*outbidv1.DeviceLink, error) { return nil, nil, nil }
