package checkpoint

import (
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
)

func BenchmarkAdd(b *testing.B) {
	for _, d := range []safetensors.DType{safetensors.F32, safetensors.BF16, safetensors.F16, safetensors.F8E4M3, safetensors.F64} {
		raw := make([]byte, blockBytes)
		for i := range raw {
			raw[i] = byte(i*7) & 0x3b
		}
		sum := make([]float64, blockBytes/d.Size())
		b.Run("add/"+string(d), func(b *testing.B) {
			b.SetBytes(blockBytes)
			for b.Loop() {
				clear(sum)
				add(sum, raw, 0.2, d)
			}
		})
		b.Run("put/"+string(d), func(b *testing.B) {
			b.SetBytes(blockBytes)
			for b.Loop() {
				put(raw, sum, d)
			}
		})
	}
}
