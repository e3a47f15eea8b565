package sample

// gonum has no Sobol sequence. The direction numbers are dimensions 2 to 256 of new-joe-kuo-6.21201: S. Joe and F. Y. Kuo, "Constructing Sobol
// sequences with better two-dimensional projections", SIAM J. Sci. Comput. 30, 2635-2654 (2008), under this licence:
//
// Copyright (c) 2008, Frances Y. Kuo and Stephen Joe
// All rights reserved.
//
// Redistribution and use in source and binary forms, with or without modification, are permitted provided that the
// following conditions are met:
//
//   - Redistributions of source code must retain the above copyright notice, this list of conditions and the
//     following disclaimer.
//   - Redistributions in binary form must reproduce the above copyright notice, this list of conditions and the
//     following disclaimer in the documentation and/or other materials provided with the distribution.
//   - Neither the names of the copyright holders nor the names of the University of New South Wales and the
//     University of Waikato and its contributors may be used to endorse or promote products derived from this
//     software without specific prior written permission.
//
// THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS "AS IS" AND ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT
// NOT LIMITED TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE DISCLAIMED. IN
// NO EVENT SHALL THE COPYRIGHT HOLDERS BE LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL, EXEMPLARY, OR
// CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES; LOSS OF USE,
// DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY THEORY OF LIABILITY, WHETHER IN CONTRACT,
// STRICT LIABILITY, OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE OF THIS SOFTWARE,
// EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.

import (
	_ "embed" // for joeKuo
	"strconv"
	"strings"
)

// sobolDims is the number of dimensions in the table.
const sobolDims = 256

// directions returns the direction numbers of the first dims dimensions, at most sobolDims, as fractions of 2^32.
func directions(dims int) [][sobolBits]uint32 {
	out := make([][sobolBits]uint32, dims)
	lines := strings.Split(joeKuo, "\n")
	for d := range out {
		v := &out[d]
		if d == 0 {
			for k := range v {
				v[k] = 1 << (sobolBits - 1 - k)
			}
			continue
		}
		fields := strings.Fields(lines[d])
		degree := len(fields) - 1
		poly := atoi(fields[0])
		for k := range v {
			if k < degree {
				v[k] = atoi(fields[k+1]) << (sobolBits - 1 - k)
				continue
			}
			// Equation (2) of Joe and Kuo: the recurrence of the primitive polynomial.
			v[k] = v[k-degree] ^ v[k-degree]>>degree
			for j := 1; j < degree; j++ {
				v[k] ^= (poly >> (degree - 1 - j) & 1) * v[k-j]
			}
		}
	}
	return out
}

// atoi converts a number of the table. A test reads the whole table, so a bad number cannot go unnoticed.
func atoi(s string) uint32 {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// joeKuo has a line for each dimension from the second on: the inner coefficients of the primitive polynomial as a
// number, and the initial direction numbers, as many as its degree.
//
//go:embed joekuo.txt
var joeKuo string
