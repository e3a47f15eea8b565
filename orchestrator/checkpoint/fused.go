package checkpoint

import "github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"

// fusedNumbers are added up at once: their sums stay in a core's smallest cache.
const fusedNumbers = 2048

// fuse adds up, for each number of sum, what all files have there by their weights: what set with the first file and add with
// the others make. raw has each file's bytes, of as many numbers as sum has, at least one.
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

// fused computes elements of a tensor, of no more than 32 bits, whose bytes are in memory. False says that one of them is not
// finite: then out is not to be used.
func (a *Average) fused(b *block, t safetensors.Tensor, from int64, out []byte, read reader) (whole bool, err error) {
	if len(b.raws) != len(a.sources) {
		b.raws, b.parts = make([][]byte, len(a.sources)), make([][]byte, len(a.sources))
	}
	for k, s := range a.sources {
		if b.raws[k], err = read.bytes(s, t, from, b.raw[:len(out)]); err != nil {
			return false, err
		}
	}
	defer clear(b.raws) // a block outlives what it points to
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
