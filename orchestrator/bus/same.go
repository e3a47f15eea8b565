package bus

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// repeatCache decodes messages that repeat a list. An uplink lists every fork of its node, and orders every assignment,
// although most bring one report or acknowledgement. On a node with a hundred trials, nine tenths of the work would be
// decoding unchanged entries. A list with identical bytes is replaced by the previously decoded list, which must not be
// modified. It is not safe for concurrent use.
type repeatCache[T any] struct {
	field protowire.Number
	last  map[string]decodedList[T]
}

type decodedList[T any] struct {
	raw  []byte
	list []T
}

func newSame[T any](field protowire.Number) *repeatCache[T] {
	return &repeatCache[T]{field: field, last: map[string]decodedList[T]{}}
}

// decode decodes a sender's message into m, an empty message. list is the field of m that repeats.
func (s *repeatCache[T]) decode(who string, data []byte, m proto.Message, list *[]T) error {
	from, to, ok := run(data, s.field)
	if !ok {
		return proto.Unmarshal(data, m)
	}
	before := s.last[who]
	if before.list == nil || !bytes.Equal(before.raw, data[from:to]) {
		if err := proto.Unmarshal(data, m); err != nil {
			return err
		}
		s.last[who] = decodedList[T]{data[from:to], (*list)[:len(*list):len(*list)]}
		return nil
	}
	err := proto.Unmarshal(data[:from], m)
	if err == nil {
		err = proto.UnmarshalOptions{Merge: true}.Unmarshal(data[to:], m)
	}
	*list = before.list
	return err
}

// run returns the position of a list's entries in an encoded message. It returns false if they are missing or not
// contiguous.
func run(data []byte, field protowire.Number) (from, to int, ok bool) {
	for at := 0; at < len(data); {
		number, kind, head := protowire.ConsumeTag(data[at:])
		if head < 0 {
			return 0, 0, false
		}
		value := protowire.ConsumeFieldValue(number, kind, data[at+head:])
		if value < 0 {
			return 0, 0, false
		}
		next := at + head + value
		switch {
		case number != field:
		case !ok:
			from, to, ok = at, next, true
		case to != at:
			return 0, 0, false
		default:
			to = next
		}
		at = next
	}
	return from, to, ok
}
