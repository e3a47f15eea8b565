package checkpoint

import "github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"

// fusedNumbers is how many numbers are summed at once; their sums fit into a core's smallest cache.
const fusedNumbers = 2048

// fuse sets each number of sum to the weighted sum over all files, like set with the first file and add with the
// others. raw has at least one file; each has as many numbers as sum.
func fuse(sum []float64, raw [][]byte, weights []float64, d safetensors.DType) {
	n := fuseVectors(sum, raw, weights, d)
	if n == len(sum) {
		return
	}
	rest, at := sum[n:], int64(n)*d.Size()
	set(rest, raw[0][at:], weights[0], d)
	for k, r := range raw[1:] {
		add(rest, r[at:], weights[k+1], d)
	}
}

// fused computes elements, of at most 32 bits, of a tensor whose bytes are in memory. If it returns false, an element
// is not finite, and out must not be used.
func (a *Average) fused(b *block, t safetensors.Tensor, from int64, out []byte, read reader) (whole bool, err error) {
	if len(b.raws) != len(a.sources) {
		b.raws, b.parts = make([][]byte, len(a.sources)), make([][]byte, len(a.sources))
	}
	for k, s := range a.sources {
		if b.raws[k], err = read.bytes(s, t, from, b.raw[:len(out)]); err != nil {
			return false, err
		}
	}
	defer clear(b.raws) // a block outlives the mapped bytes
	size := int(t.DType.Size())
	whole = true
	for at := 0; at < len(out) && whole; at += fusedNumbers * size {
		end := min(at+fusedNumbers*size, len(out))
		for k, r := range b.raws {
			b.parts[k] = r[at:end]
		}
		sum := b.sum[:(end-at)/size]
		fuse(sum, b.parts, a.shares, t.DType)
		whole = put(out[at:end], sum, t.DType)
	}
	return whole, nil
}
