package server

import (
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// mark names a batch of the ledger in a small file. One bit that flips must not make it another batch.
type mark struct {
	seq uint64
	// hash of the batch; nil if it is not known.
	hash []byte
}

// String is the mark as a file holds it: the sequence, the hash or a dash, and a CRC-32C of both.
func (m mark) String() string {
	hash := "-"
	if len(m.hash) > 0 {
		hash = hex.EncodeToString(m.hash)
	}
	text := fmt.Sprintf("%020d %s", m.seq, hash)
	return fmt.Sprintf("%s %08x\n", text, crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli)))
}

// parseMark returns the mark that a file holds; false if it holds none, or one that was damaged. Files of older versions hold the
// sequence alone.
func parseMark(data []byte) (mark, bool) {
	line, _, whole := strings.Cut(string(data), "\n")
	words := strings.Fields(line)
	if !whole || len(words) != 1 && len(words) != 3 {
		return mark{}, false
	}
	seq, err := strconv.ParseUint(words[0], 10, 64)
	m := mark{seq: seq}
	if err == nil && len(words) == 3 && words[1] != "-" {
		m.hash, err = hex.DecodeString(words[1])
	}
	if err != nil || len(words) == 3 && m.String() != line+"\n" {
		return mark{}, false
	}
	return m, true
}
