package api

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// encoded is a message in its wire format. It is encoded once and sent to every client that watches the same sweep.
type encoded struct {
	data []byte
	kind protoreflect.MessageType
}

func encode(m protobuf.Message) (*encoded, error) {
	data, err := protobuf.Marshal(m)
	return &encoded{data, m.ProtoReflect().Type()}, err
}

// wireCodec is gRPC's proto codec, except that it sends encoded messages unchanged, and lists from the encodings of their sweeps.
type wireCodec struct {
	encoding.CodecV2
	// sweeps may be nil for a codec that sends no lists.
	sweeps *sweepEncodings
}

func newWireCodec(sweeps *sweepEncodings) wireCodec {
	return wireCodec{encoding.GetCodecV2(proto.Name), sweeps}
}

// Marshal implements encoding.CodecV2.
func (c wireCodec) Marshal(v any) (mem.BufferSlice, error) {
	if e, ok := v.(*encoded); ok {
		return mem.BufferSlice{mem.SliceBuffer(e.data)}, nil // the buffer is shared: neither counted nor changed
	}
	if list, ok := v.(*outbidv1.ListSweepsResponse); ok && c.sweeps != nil {
		data, err := c.sweeps.list(list)
		return mem.BufferSlice{mem.SliceBuffer(data)}, err
	}
	return c.CodecV2.Marshal(v)
}
