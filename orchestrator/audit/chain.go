package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Record is a stored event. Seq counts from 1 without gaps. PrevHash is the hash of the previous record, or "" in the
// first.
type Record struct {
	Hash     string `json:"-"`
	PrevHash string `json:"prevHash"`
	Seq      uint64 `json:"seq"`
	Event
}

// A line is `{"hash":"HEX",` and the rest of a record. The hash is the SHA-256 of `{` and that rest, so that it covers
// the exact bytes, including fields that this version does not know.
const (
	hashPrefix = `{"hash":"`
	hashEnd    = len(hashPrefix) + 2*sha256.Size
	bodyStart  = hashEnd + len(`",`)
)

// seal returns the line of an event that follows the record with prevHash.
func seal(prevHash string, seq uint64, e Event) (line []byte, hash string, err error) {
	body, err := json.Marshal(Record{PrevHash: prevHash, Seq: seq, Event: e.bounded()})
	if err != nil {
		return nil, "", fmt.Errorf("encode an audit record: %w", err)
	}
	sum := sha256.Sum256(body)
	hash = hex.EncodeToString(sum[:])
	return append([]byte(hashPrefix+hash+`",`), body[1:]...), hash, nil
}

// Parse decodes a line and checks that its hash matches its content.
func Parse(line []byte) (Record, error) {
	if len(line) < bodyStart || !bytes.HasPrefix(line, []byte(hashPrefix)) || string(line[hashEnd:bodyStart]) != `",` {
		return Record{}, fmt.Errorf("not an audit record: it must begin with %s", hashPrefix)
	}
	body := append([]byte("{"), line[bodyStart:]...)
	r := Record{Hash: string(line[len(hashPrefix):hashEnd])}
	if err := json.Unmarshal(body, &r); err != nil {
		return r, fmt.Errorf("not an audit record: %w", err)
	}
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != r.Hash {
		return r, fmt.Errorf("record %d was changed: its content does not match its hash", r.Seq)
	}
	return r, nil
}

// Anchor is a record that was noted outside the audit: its sequence and its hash.
type Anchor struct {
	Seq  uint64
	Hash string
}

// ParseAnchor parses SEQ:HASH.
func ParseAnchor(text string) (Anchor, error) {
	number, hash, found := strings.Cut(text, ":")
	seq, err := strconv.ParseUint(number, 10, 64)
	if !found || err != nil || len(hash) != 2*sha256.Size {
		return Anchor{}, fmt.Errorf("%q: must be SEQ:HASH, as 'outbid audit verify' prints it", text)
	}
	return Anchor{seq, hash}, nil
}

// String returns SEQ:HASH.
func (a Anchor) String() string { return fmt.Sprintf("%d:%s", a.Seq, a.Hash) }

// Verifier checks the hash chain of records that are added in order. The zero value is ready. The first record may have
// any predecessor, because limits delete the oldest records.
type Verifier struct {
	// Anchor, if set, must be among the records.
	Anchor *Anchor

	// First and Last are the range of records. From and To are their times.
	First, Last Anchor
	From, To    time.Time
	// Records counts records, Lost those that could not be stored.
	Records, Lost uint64
	anchored      bool
}

// Add checks the next line.
func (v *Verifier) Add(line []byte) error {
	r, err := Parse(line)
	if err != nil {
		if v.Records > 0 {
			return fmt.Errorf("after record %d: %w", v.Last.Seq, err)
		}
		return err
	}
	switch {
	case v.Records == 0:
		v.First, v.From = Anchor{r.Seq, r.Hash}, r.StageTimestamp
	case r.Seq != v.Last.Seq+1:
		return fmt.Errorf("record %d follows record %d: the records between them were removed or reordered", r.Seq, v.Last.Seq)
	case r.PrevHash != v.Last.Hash:
		return fmt.Errorf("record %d does not follow record %d: its previous hash is %.12s…, and that record has %.12s…", r.Seq, v.Last.Seq,
			r.PrevHash, v.Last.Hash)
	}
	if a := v.Anchor; a != nil && a.Seq == r.Seq {
		if a.Hash != r.Hash {
			return fmt.Errorf("record %d has the hash %s, not that of the anchor, %s: the audit was replaced", r.Seq, r.Hash, a.Hash)
		}
		v.anchored = true
	}
	lost, _ := strconv.ParseUint(r.Annotations[AnnotationLost], 10, 64)
	v.Last, v.To = Anchor{r.Seq, r.Hash}, r.StageTimestamp
	v.Records++
	v.Lost += lost
	return nil
}

// End checks that the anchor was found.
func (v *Verifier) End() error {
	a := v.Anchor
	switch {
	case a == nil || v.anchored:
		return nil
	case v.Records == 0 || a.Seq > v.Last.Seq:
		return fmt.Errorf("the audit ends with record %d, before the anchor, record %d: its end was removed", v.Last.Seq, a.Seq)
	}
	return fmt.Errorf("the audit begins with record %d, after the anchor, record %d; use a newer anchor", v.First.Seq, a.Seq)
}
