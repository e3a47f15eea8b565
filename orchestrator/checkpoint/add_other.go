//go:build !amd64

package checkpoint

import "github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"

// setVectors is not implemented on this architecture.
func setVectors([]float64, []byte, float64, safetensors.DType) int { return 0 }

// addVectors is not implemented on this architecture.
func addVectors([]float64, []byte, float64, safetensors.DType) int { return 0 }

// fuseVectors is not implemented on this architecture.
func fuseVectors([]float64, [][]byte, []float64, safetensors.DType) int { return 0 }

// putWide is not implemented on this architecture.
func putWide([]byte, []float64) (int, bool) { return 0, true }

// putVectors is not implemented on this architecture.
func putVectors([]byte, []float64, layout) int { return 0 }
