package ledger

import (
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func testEvents(texts ...string) []*outbidv1.Event {
	var events []*outbidv1.Event
	for _, text := range texts {
		events = append(events, &outbidv1.Event{Kind: &outbidv1.Event_Note{Note: &outbidv1.Note{Text: text}}})
	}
	return events
}

func testBatch(t testing.TB, seq uint64, prev []byte, texts ...string) *outbidv1.Batch {
	t.Helper()
	b, err := NewBatch(seq, time.Unix(int64(seq), 5), prev, testEvents(texts...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func isDamage(err error, seq uint64) bool {
	var damage *DamageError
	return errors.As(err, &damage) && damage.Seq == seq
}

func TestVerify(t *testing.T) {
	t.Parallel()
	first := testBatch(t, 1, nil, "a")
	second := testBatch(t, 2, first.GetHash(), "b")
	if err := errors.Join(Verify(first, 1, nil), Verify(second, 2, first.GetHash())); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*outbidv1.Batch){
		"seq":       func(b *outbidv1.Batch) { b.Seq = 3 },
		"seconds":   func(b *outbidv1.Batch) { b.Time.Seconds++ },
		"nanos":     func(b *outbidv1.Batch) { b.Time.Nanos++ },
		"no time":   func(b *outbidv1.Batch) { b.Time = nil },
		"events":    func(b *outbidv1.Batch) { b.Events[len(b.GetEvents())-1] ^= 1 },
		"no events": func(b *outbidv1.Batch) { b.Events = nil },
		"prev":      func(b *outbidv1.Batch) { b.PrevHash[0] ^= 1 },
		"no prev":   func(b *outbidv1.Batch) { b.PrevHash = nil },
		"hash":      func(b *outbidv1.Batch) { b.Hash[31] ^= 1 },
		"no hash":   func(b *outbidv1.Batch) { b.Hash = nil },
	} {
		b := proto.CloneOf(second)
		change(b)
		if err := Verify(b, 2, first.GetHash()); !isDamage(err, 2) {
			t.Errorf("changed %s: %v", name, err)
		}
	}
	if err := Verify(second, 2, second.GetHash()); !isDamage(err, 2) {
		t.Errorf("other batch before: %v", err)
	}
	resealed := proto.CloneOf(second)
	resealed.PrevHash = nil
	resealed.Hash = Hash(resealed)
	if err := Verify(resealed, 2, nil); !isDamage(err, 2) {
		t.Errorf("second batch without a first: %v", err)
	}
}

// TestAnyChangeShows flips one bit of a stored batch anywhere: that must be noticed, or change nothing that matters.
func TestAnyChangeShows(t *testing.T) {
	t.Parallel()
	first := testBatch(t, 1, nil, "a")
	b := testBatch(t, 2, first.GetHash(), "some", "events")
	data, err := encodeBatch(b)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		changed := slices.Clone(data)
		changed[rapid.IntRange(0, len(data)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		got, err := decodeBatch(2, changed)
		if err == nil {
			err = Verify(got, 2, first.GetHash())
		}
		if err == nil && string(got.GetEvents()) != string(b.GetEvents()) {
			t.Fatalf("a change went unnoticed")
		}
		if err != nil && !isDamage(err, 2) {
			t.Fatalf("%v: not damage of batch 2", err)
		}
	})
}

func TestDecodeDamage(t *testing.T) {
	t.Parallel()
	b := &outbidv1.Batch{Seq: 7, Time: timestamppb.New(time.Unix(1, 0)), Events: []byte{0xff, 0xff}}
	if _, err := Decode(b); !isDamage(err, 7) {
		t.Errorf("%v", err)
	}
}

func TestMemoryNamesDamage(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	for range 3 {
		if _, err := m.Append(t.Context(), time.Unix(1, 0), testEvents("x")); err != nil {
			t.Fatal(err)
		}
	}
	m.record.batches[1] = m.record.batches[0]
	var read []uint64
	err := m.Read(t.Context(), 1, func(b *outbidv1.Batch) error {
		read = append(read, b.GetSeq())
		return nil
	})
	if !isDamage(err, 2) || !slices.Equal(read, []uint64{1}) {
		t.Errorf("read %v, then %v", read, err)
	}
}

func FuzzDecodeBatch(f *testing.F) {
	first := testBatch(f, 1, nil, "a", "b")
	data, err := encodeBatch(first)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data, uint64(1))
	f.Add([]byte{}, uint64(0))
	f.Add([]byte{0xff}, uint64(2))
	f.Fuzz(func(t *testing.T, data []byte, seq uint64) {
		b, err := decodeBatch(seq, data)
		if err == nil {
			err = verifyAlone(b, seq)
		}
		if err != nil {
			if !isDamage(err, seq) {
				t.Fatalf("%v: not damage of batch %d", err, seq)
			}
			return
		}
		if _, err := Decode(b); err != nil && !isDamage(err, seq) {
			t.Fatalf("%v: not damage of batch %d", err, seq)
		}
	})
}
