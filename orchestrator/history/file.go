package history

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// blockBytes is the size of collected records that triggers a write.
	blockBytes = 64 << 10
	// maxPending is the maximum size of records that are kept while writes fail.
	maxPending = 32 << 20
)

// DamageError means that a sweep's file has lost data that was once on disk. Rebuild restores it from the ledger.
type DamageError struct {
	Sweep  string
	Reason string
}

// Error implements error.
func (e *DamageError) Error() string {
	return fmt.Sprintf("the report history of %s is damaged: %s", e.Sweep, e.Reason)
}

// sweepFile is the open file of one sweep.
type sweepFile struct {
	sweep   string
	path    string
	file    *os.File
	size    int64 // of the head and whole blocks
	blocks  []block
	reports int64
	lastSeq uint64 // including pending records
	pending buffer

	turn  int    // the slot to be written next
	dirty bool   // something has been written since the last sync
	lost  error  // reports were lost: only a rebuild helps
	tryAt int    // retry a failed write once this many bytes are pending
	used  uint64 // for closeOldest
}

// openFile opens the file of a sweep and truncates a torn end. If the file does not exist, it is created if create is
// set; otherwise openFile returns nil.
func openFile(sweep, path string, create bool) (*sweepFile, error) {
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) && !create {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &sweepFile{sweep: sweep, path: path, file: f}
	if err := s.load(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// mustHave returns s if it still has the batches up to last, the last one when it was closed; s may be nil.
func (s *sweepFile) mustHave(sweep string, last uint64) (*sweepFile, error) {
	switch {
	case s == nil:
		return nil, &DamageError{Sweep: sweep, Reason: "it is gone"}
	case s.lastSeq < last:
		return nil, errors.Join(s.damaged("it ends at batch %d, but had batch %d", s.lastSeq, last), s.file.Close())
	}
	return s, nil
}

func (s *sweepFile) damaged(format string, args ...any) error {
	return &DamageError{Sweep: s.sweep, Reason: fmt.Sprintf(format, args...)}
}

// load reads the head and the headers of the blocks. Blocks that are known to be on disk must exist. Later blocks
// count up to the first one that is not whole, which the previous process did not finish.
func (s *sweepFile) load() error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	length := info.Size()
	synced, err := s.loadHead(length)
	if err != nil {
		return err
	}
	if length < int64(synced.length) {
		return s.damaged("it has %d bytes, but had %d", length, synced.length)
	}
	s.size = headSize
	for s.size < length {
		b, err := s.readHeader(s.size, length)
		if err == nil && s.size >= int64(synced.length) {
			err = s.verify(b)
		}
		if err == nil && b.firstSeq <= s.lastSeq {
			err = errTorn
		}
		if errors.Is(err, errTorn) {
			break
		}
		if err != nil {
			return err
		}
		s.addBlock(b)
	}
	if s.size < int64(synced.length) || s.lastSeq < synced.seq {
		return s.damaged("at byte %d of %d there is no whole block", s.size, synced.length)
	}
	if s.size < length {
		return s.file.Truncate(s.size)
	}
	return nil
}

// loadHead returns what was on disk at the last sync. A new head is synced at once, so that a head that is not whole
// means damage if anything follows it.
func (s *sweepFile) loadHead(length int64) (slot, error) {
	head := make([]byte, headSize)
	if n, err := s.file.ReadAt(head, 0); err != nil && (!errors.Is(err, io.EOF) || int64(n) != length) {
		return slot{}, err
	}
	if length < headSize || length == headSize && string(head[:8]) != fileMagic {
		clear(head)
		copy(head, fileMagic)
		copy(head[8:], slot{length: headSize}.encode())
		if _, err := s.file.WriteAt(head, 0); err != nil {
			return slot{}, err
		}
		s.turn = 1
		return slot{}, errors.Join(s.file.Sync(), syncDir(filepath.Dir(s.path)))
	}
	newest, at, ok := decodeHead(head)
	if !ok {
		return slot{}, s.damaged("its head is not whole")
	}
	s.turn = 1 - at
	return newest, nil
}

// decodeHead returns the newest slot of a head and its number, or false.
func decodeHead(head []byte) (newest slot, at int, ok bool) {
	if string(head[:8]) != fileMagic {
		return slot{}, 0, false
	}
	a, aOK := decodeSlot(head[8:])
	b, bOK := decodeSlot(head[8+slotSize:])
	if aOK && (!bOK || a.length >= b.length) {
		return a, 0, true
	}
	return b, 1, bOK
}

func (s *sweepFile) readHeader(at, length int64) (block, error) {
	head := make([]byte, min(blockHeader+filterSize, length-at))
	if _, err := s.file.ReadAt(head, at); err != nil {
		return block{}, err
	}
	b, err := decodeHeader(head)
	if err == nil && at+b.size > length {
		err = errTorn
	}
	b.offset = at
	return b, err
}

func (s *sweepFile) verify(b block) error {
	_, err := readBlock(s.file, b)
	return err
}

// readBlock returns the records of a block, or errTorn if the file does not match the index.
func readBlock(r io.ReaderAt, b block) ([]byte, error) {
	data := make([]byte, b.size)
	if _, err := r.ReadAt(data, b.offset); errors.Is(err, io.EOF) {
		return nil, errTorn
	} else if err != nil {
		return nil, err
	}
	found, records, err := decodeBlock(data)
	if err == nil && (found.records != b.records || found.firstSeq != b.firstSeq || found.lastSeq != b.lastSeq) {
		err = errTorn
	}
	return records, err
}

// addBlock adds a block to the index.
func (s *sweepFile) addBlock(b block) {
	b.offset = s.size
	s.blocks = append(s.blocks, b)
	s.size += b.size
	s.reports += int64(b.records)
	s.lastSeq = b.lastSeq
}

// addBatch buffers the reports of batch seq. They go into one block, so that a batch is stored as a whole or not at
// all.
func (s *sweepFile) addBatch(seq uint64, reports []*outbidv1.TrialReported) error {
	if s.lost == nil && len(s.pending.data) > maxPending {
		s.lost = s.damaged("reports came while nothing could be written")
	}
	if s.lost != nil {
		return s.lost
	}
	for _, report := range reports {
		if err := s.pending.add(seq, report.GetTrial(), report.GetReport()); err != nil {
			s.lost = s.damaged("a report of batch %d cannot be encoded: %v", seq, err)
			return s.lost
		}
	}
	s.lastSeq = seq
	if !s.pending.full() || len(s.pending.data) < s.tryAt {
		return nil
	}
	return s.write()
}

// write writes pending records to the file without a sync. The next write overwrites a failed one.
func (s *sweepFile) write() error {
	if s.pending.records == 0 {
		return nil
	}
	data, b := s.pending.encode()
	if _, err := s.file.WriteAt(data, s.size); err != nil {
		s.tryAt = 2 * len(s.pending.data) // a full disk must not cost an attempt per report
		return err
	}
	s.tryAt = 0
	s.addBlock(b)
	s.dirty = true
	s.pending.reset()
	return nil
}

// sync syncs the file and then updates its head, which may reach the disk later.
func (s *sweepFile) sync() error {
	done, err := s.begin()
	if err != nil || done.length == 0 {
		return err
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	return s.synced(done)
}

// begin writes pending records and returns the slot for the head after a sync, or a length of 0 if everything is
// synced.
func (s *sweepFile) begin() (slot, error) {
	if s.lost != nil {
		return slot{}, s.lost
	}
	if err := s.write(); err != nil || !s.dirty {
		return slot{}, err
	}
	return slot{length: uint64(s.size), seq: s.lastSeq}, nil
}

// synced updates the head after a sync. More may have been written meanwhile.
func (s *sweepFile) synced(done slot) error {
	if _, err := s.file.WriteAt(done.encode(), int64(8+s.turn*slotSize)); err != nil {
		return err
	}
	s.turn, s.dirty = 1-s.turn, done.length != uint64(s.size)
	return nil
}
