package server

import (
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// mark identifies a batch of the ledger in a small file. A flipped bit must not make it another batch.
type mark struct {
	seq uint64
	// hash of the batch, or nil if unknown.
	hash []byte
}

// String returns the mark as stored in a file: the sequence number, the hash or a dash, and a CRC-32C of both.
func (m mark) String() string {
	hash := "-"
	if len(m.hash) > 0 {
		hash = hex.EncodeToString(m.hash)
	}
	text := fmt.Sprintf("%020d %s", m.seq, hash)
	return fmt.Sprintf("%s %08x\n", text, crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli)))
}

// parseMark parses a stored mark. It returns false if the mark is missing or damaged.
func parseMark(data []byte) (mark, bool) {
	line, _, whole := strings.Cut(string(data), "\n")
	words := strings.Fields(line)
	if !whole || len(words) != 3 {
		return mark{}, false
	}
	seq, err := strconv.ParseUint(words[0], 10, 64)
	m := mark{seq: seq}
	if err == nil && words[1] != "-" {
		m.hash, err = hex.DecodeString(words[1])
	}
	if err != nil || m.String() != line+"\n" {
		return mark{}, false
	}
	return m, true
}
