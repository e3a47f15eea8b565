package bus

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// same decodes messages that repeat a list. An uplink names every fork of its node, and orders every assignment, though
// most bring a report or acknowledge one: on a node with a hundred trials nine tenths of the work would be to decode what
// was said a moment before. A list that is the same byte for byte is the one that was decoded then; nobody changes it.
// It is not safe for concurrent use.
type same[T any] struct {
	field protowire.Number
	last  map[string]said[T]
}

type said[T any] struct {
	raw  []byte
	list []T
}

func newSame[T any](field protowire.Number) *same[T] {
	return &same[T]{field: field, last: map[string]said[T]{}}
}

// decode decodes what somebody said into m, an empty message, in which list is the one that repeats.
func (s *same[T]) decode(who string, data []byte, m proto.Message, list *[]T) error {
	from, to, ok := run(data, s.field)
	if !ok {
		return proto.Unmarshal(data, m)
	}
	before := s.last[who]
	if before.list == nil || !bytes.Equal(before.raw, data[from:to]) {
		if err := proto.Unmarshal(data, m); err != nil {
			return err
		}
		s.last[who] = said[T]{data[from:to], (*list)[:len(*list):len(*list)]}
		return nil
	}
	err := proto.Unmarshal(data[:from], m)
	if err == nil {
		err = proto.UnmarshalOptions{Merge: true}.Unmarshal(data[to:], m)
	}
	*list = before.list
	return err
}

// run says where in an encoded message the entries of a list stand; false if there are none, or not all in one place.
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
