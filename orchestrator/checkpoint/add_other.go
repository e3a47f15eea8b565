//go:build !amd64

package checkpoint

import "github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"

// setVectors says how many of the first numbers it set.
func setVectors([]float64, []byte, float64, safetensors.DType) int { return 0 }

// addVectors says how many of the first numbers it added.
func addVectors([]float64, []byte, float64, safetensors.DType) int { return 0 }

// fuseVectors says how many of the first numbers it added up.
func fuseVectors([]float64, [][]byte, []float64, safetensors.DType) int { return 0 }

// putWide says how many of the first numbers it rounded to float32 and wrote.
func putWide([]byte, []float64) (int, bool) { return 0, true }

// putVectors says how many of the first numbers it rounded to a type of 16 bits and wrote.
func putVectors([]byte, []float64, layout) int { return 0 }
