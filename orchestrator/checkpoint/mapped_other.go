//go:build !linux

package checkpoint

import "github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"

// windows are memory-mapped parts of files, which are implemented only on Linux.
type windows struct{}

func newWindows(*Average, int64) *windows { return nil }

func (*windows) bytes(in *input, t safetensors.Tensor, from int64, p []byte) ([]byte, error) {
	return p, in.read(t, from, p)
}

func (*windows) close() error { return nil }

func (*windows) guard(f func() error) error { return f() }
