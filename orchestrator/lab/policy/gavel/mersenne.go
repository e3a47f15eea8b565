package gavel

import "math/bits"

// Mersenne is the MT19937 generator, seeded and read like Python's random.Random. Gavel's simulator uses it, so that
// its runs can be reproduced with the same seed. Its two numbers are its snapshot: Restore replays the draws.
type Mersenne struct {
	state [624]uint32
	next  int
	// Seed and Draws are the generator's position.
	Seed  uint32 `json:"seed"`
	Draws uint64 `json:"draws"`
}

// NewMersenne seeds a generator like random.Random(seed) and skips the given draws.
func NewMersenne(seed uint32, draws uint64) *Mersenne {
	m := &Mersenne{Seed: seed, next: 624}
	s := &m.state
	s[0] = 19650218
	for i := uint32(1); i < 624; i++ {
		s[i] = 1812433253*(s[i-1]^s[i-1]>>30) + i
	}
	i := 1
	wrap := func() {
		if i++; i == 624 {
			s[0] = s[623]
			i = 1
		}
	}
	for range 624 {
		s[i] = (s[i] ^ (s[i-1]^s[i-1]>>30)*1664525) + seed
		wrap()
	}
	for range 623 {
		s[i] = (s[i] ^ (s[i-1]^s[i-1]>>30)*1566083941) - uint32(i)
		wrap()
	}
	s[0] = 1 << 31
	for range draws {
		m.Uint32()
	}
	return m
}

// Uint32 returns the next draw.
func (m *Mersenne) Uint32() uint32 {
	if m.next == 624 {
		for i := range 624 {
			y := m.state[i]&(1<<31) | m.state[(i+1)%624]&(1<<31-1)
			m.state[i] = m.state[(i+397)%624] ^ y>>1 ^ (y&1)*0x9908b0df
		}
		m.next = 0
	}
	y := m.state[m.next]
	m.next++
	m.Draws++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// Below is randrange(n) for n > 0.
func (m *Mersenne) Below(n int) int {
	k := bits.Len(uint(n))
	for {
		if v := int(m.Uint32() >> (32 - k)); v < n {
			return v
		}
	}
}

// Shuffle is random.shuffle.
func (m *Mersenne) Shuffle(list []int) {
	for i := len(list) - 1; i > 0; i-- {
		j := m.Below(i + 1)
		list[i], list[j] = list[j], list[i]
	}
}
