package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/s2"
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A file begins with a head of headSize bytes: fileMagic and two slots, written in turn, which give the length of the
// file that is known to be on disk. Blocks follow: a header, a filter of the trials if there are many records, and
// the records, compressed if that makes them smaller.
//
//	slot:   u64 length on disk, u64 last ledger sequence, u32 CRC-32C of the two
//	block:  u32 magic, u8 flags, u24 lowest bits of the CRC-32C of header and filter, u32 stored
//	        bytes, u32 raw bytes, u32 records, u32 CRC-32C of all the rest, u64 first and u64 last ledger sequence, u32 lowest
//	        and u32 highest trial; filter; records
//	record: uvarint ledger sequence after the block's first, uvarint trial, uvarint bytes, Report
//
// Numbers are little-endian.
//
// Parquet is not used, because it has its index at the end of the file: a file that is appended to all the time, and cut at
// any byte by a crash, would have none.
const (
	fileMagic  = "OUTBIDH1"
	slotSize   = 20
	headSize   = 64
	blockMagic = 0x4b4c424f

	blockHeader = 48
	filterBits  = 1024
	filterSize  = filterBits / 8
	// filterFrom is the number of records from which a block has a filter.
	filterFrom = 64
	// filterFull is the number of bits that may be set in a filter before a new block begins; more would make it
	// useless.
	filterFull = filterBits / 4
	// maxBlock limits the bytes that are allocated because of a damaged length. A block holds a little more than one
	// batch.
	maxBlock = 64 << 20

	flagPacked = 1
	flagFilter = 2
	// flagSummed is set in every block: header and filter have a separate checksum, so that they can be trusted without
	// reading the records.
	flagSummed = 4
)

// errTorn means that bytes are not a whole block.
var errTorn = errors.New("not a whole block")

func checksum(parts ...[]byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := uint32(0)
	for _, part := range parts {
		sum = crc32.Update(sum, table, part)
	}
	return sum
}

// slot records that length bytes are on disk, and that seq is the last ledger sequence in them.
type slot struct{ length, seq uint64 }

func (s slot) encode() []byte {
	b := make([]byte, 0, slotSize)
	b = binary.LittleEndian.AppendUint64(b, s.length)
	b = binary.LittleEndian.AppendUint64(b, s.seq)
	return binary.LittleEndian.AppendUint32(b, checksum(b))
}

func decodeSlot(b []byte) (slot, bool) {
	ok := binary.LittleEndian.Uint32(b[16:]) == checksum(b[:16])
	return slot{length: binary.LittleEndian.Uint64(b), seq: binary.LittleEndian.Uint64(b[8:])}, ok
}

// filter has a bit for every trial modulo its size. The trials of a block have neighbouring numbers, which do not
// share bits.
type filter [filterSize]byte

func (f *filter) set(trial int32) { f[uint32(trial)%filterBits/8] |= 1 << (uint32(trial) % 8) }
func (f *filter) has(trial int32) bool {
	return f[uint32(trial)%filterBits/8]&(1<<(uint32(trial)%8)) != 0
}

// block is an index entry of a block.
type block struct {
	offset   int64
	size     int64 // with header and filter
	records  int
	firstSeq uint64
	lastSeq  uint64
	low      int32 // trial number
	high     int32
	trials   *filter // nil: any trial in between may be in the block
}

// has reports whether a trial may be in the block.
func (b *block) has(trial int32) bool {
	return b.low <= trial && trial <= b.high && (b.trials == nil || b.trials.has(trial))
}

// buffer collects the records of the next block.
type buffer struct {
	data     []byte
	records  int
	firstSeq uint64
	lastSeq  uint64
	low      int32
	high     int32
	trials   filter
	bits     int // bits set in trials
	// starts of every startEvery-th record.
	starts []int
}

// startEvery is the number of records between two entries of starts.
const startEvery = 64

// after returns the records after the first n.
func (b *buffer) after(n int) []byte {
	if n >= b.records {
		return nil
	}
	return skipRecords(b.data[b.starts[n/startEvery]:], int64(n%startEvery))
}

// skipRecords returns the records after the first n. They must be whole; those from a file have been verified.
func skipRecords(data []byte, n int64) []byte {
	for ; n > 0 && len(data) > 0; n-- {
		var size uint64
		for range 3 {
			v, k := binary.Uvarint(data)
			size, data = v, data[max(k, 0):]
		}
		data = data[min(size, uint64(len(data))):]
	}
	return data
}

// full reports whether to write the block.
func (b *buffer) full() bool { return len(b.data) >= blockBytes || b.bits >= filterFull }

func (b *buffer) reset() { *b = buffer{data: b.data[:0], starts: b.starts[:0]} }

func (b *buffer) add(seq uint64, trial int32, r *outbidv1.Report) error {
	if b.records == 0 {
		b.firstSeq, b.low, b.high = seq, trial, trial
	}
	size := proto.Size(r)
	data := binary.AppendUvarint(b.data, seq-b.firstSeq)
	data = binary.AppendUvarint(data, uint64(uint32(trial)))
	data = binary.AppendUvarint(data, uint64(size))
	data, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(data, r)
	if err != nil {
		return err
	}
	if b.records%startEvery == 0 {
		b.starts = append(b.starts, len(b.data))
	}
	b.data, b.lastSeq = data, seq
	b.records++
	b.low, b.high = min(b.low, trial), max(b.high, trial)
	if !b.trials.has(trial) {
		b.trials.set(trial)
		b.bits++
	}
	return nil
}

// encode returns the block and its index entry without the offset.
func (b *buffer) encode() ([]byte, block) {
	meta := block{records: b.records, firstSeq: b.firstSeq, lastSeq: b.lastSeq, low: b.low, high: b.high}
	flags, payload := byte(flagSummed), b.data
	if packed := s2.Encode(nil, b.data); len(packed) < len(b.data) {
		flags, payload = flags|flagPacked, packed
	}
	head := make([]byte, blockHeader, blockHeader+filterSize)
	if b.records >= filterFrom {
		flags |= flagFilter
		trials := b.trials
		meta.trials = &trials
		head = append(head, trials[:]...)
	}
	binary.LittleEndian.PutUint32(head[0:], blockMagic)
	head[4] = flags
	binary.LittleEndian.PutUint32(head[8:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(head[12:], uint32(len(b.data)))
	binary.LittleEndian.PutUint32(head[16:], uint32(b.records))
	binary.LittleEndian.PutUint64(head[24:], b.firstSeq)
	binary.LittleEndian.PutUint64(head[32:], b.lastSeq)
	binary.LittleEndian.PutUint32(head[40:], uint32(b.low))
	binary.LittleEndian.PutUint32(head[44:], uint32(b.high))
	putHeaderSum(head, headerSum(head))
	binary.LittleEndian.PutUint32(head[20:], checksum(head, payload)) // computed with a checksum of 0
	out := append(head, payload...)
	meta.size = int64(len(out))
	return out, meta
}

// headerSum returns the checksum of a header and the filter after it, without the checksums in the header.
func headerSum(head []byte) uint32 {
	return checksum(head[:5], head[8:20], head[24:]) & 0xff_ffff
}

func putHeaderSum(head []byte, sum uint32) {
	head[5], head[6], head[7] = byte(sum), byte(sum>>8), byte(sum>>16)
}

func getHeaderSum(head []byte) uint32 {
	return uint32(head[5]) | uint32(head[6])<<8 | uint32(head[7])<<16
}

// decodeHeader decodes the part of a block before the records. b holds at least the header, and the filter if there
// is one.
func decodeHeader(b []byte) (block, error) {
	if len(b) < blockHeader || binary.LittleEndian.Uint32(b) != blockMagic || b[4]&^(flagPacked|flagFilter) != flagSummed {
		return block{}, errTorn
	}
	meta := block{
		size:     blockHeader + int64(binary.LittleEndian.Uint32(b[8:])),
		records:  int(binary.LittleEndian.Uint32(b[16:])),
		firstSeq: binary.LittleEndian.Uint64(b[24:]),
		lastSeq:  binary.LittleEndian.Uint64(b[32:]),
		low:      int32(binary.LittleEndian.Uint32(b[40:])),
		high:     int32(binary.LittleEndian.Uint32(b[44:])),
	}
	raw := binary.LittleEndian.Uint32(b[12:])
	if meta.size > maxBlock || raw > maxBlock || meta.records == 0 || meta.firstSeq > meta.lastSeq ||
		uint32(meta.records) > raw {
		return block{}, errTorn
	}
	if b[4]&flagFilter != 0 {
		if len(b) < blockHeader+filterSize {
			return block{}, errTorn
		}
		meta.trials = new(filter)
		copy(meta.trials[:], b[blockHeader:])
		meta.size += filterSize
	}
	end := blockHeader
	if meta.trials != nil {
		end += filterSize
	}
	if headerSum(b[:end]) != getHeaderSum(b) {
		return block{}, errTorn
	}
	return meta, nil
}

// decodeBlock returns the encoded records of a whole block.
func decodeBlock(b []byte) (block, []byte, error) {
	meta, err := decodeHeader(b)
	if err != nil || int64(len(b)) != meta.size {
		return block{}, nil, errTorn
	}
	var head [blockHeader]byte
	copy(head[:], b)
	binary.LittleEndian.PutUint32(head[20:], 0)
	if checksum(head[:], b[blockHeader:]) != binary.LittleEndian.Uint32(b[20:]) {
		return block{}, nil, errTorn
	}
	payload := b[blockHeader:]
	if meta.trials != nil {
		payload = payload[filterSize:]
	}
	raw := int(binary.LittleEndian.Uint32(b[12:]))
	if b[4]&flagPacked != 0 {
		if n, err := s2.DecodedLen(payload); err != nil || n != raw {
			return block{}, nil, errTorn
		}
		if payload, err = s2.Decode(nil, payload); err != nil {
			return block{}, nil, errTorn
		}
	}
	if len(payload) != raw {
		return block{}, nil, errTorn
	}
	return meta, payload, nil
}

// eachRecord calls f for the records of a block, or of one trial if trial is not nil. Others are skipped without
// decoding.
func eachRecord(data []byte, trial *int32, f func(int32, *outbidv1.Report) error) error {
	for len(data) > 0 {
		var fields [3]uint64
		for i := range fields {
			v, n := binary.Uvarint(data)
			if n <= 0 {
				return fmt.Errorf("decode a record: %w", errTorn)
			}
			fields[i], data = v, data[n:]
		}
		of, size := int32(uint32(fields[1])), fields[2]
		if size > uint64(len(data)) {
			return fmt.Errorf("decode a record: %w", errTorn)
		}
		report := data[:size]
		data = data[size:]
		if trial != nil && *trial != of {
			continue
		}
		r := new(outbidv1.Report)
		if err := proto.Unmarshal(report, r); err != nil {
			return fmt.Errorf("decode a record: %w", err)
		}
		if err := f(of, r); err != nil {
			return err
		}
	}
	return nil
}
