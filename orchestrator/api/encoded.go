package api

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"
)

// encoded is a message as it goes over the wire: made once, and sent to everybody who watches the same.
type encoded struct{ data []byte }

func encode(m protobuf.Message) (*encoded, error) {
	data, err := protobuf.Marshal(m)
	return &encoded{data}, err
}

// wireCodec is gRPC's own codec for messages, and sends encoded ones as they are.
type wireCodec struct{ encoding.CodecV2 }

func newWireCodec() wireCodec { return wireCodec{encoding.GetCodecV2(proto.Name)} }

// Marshal implements encoding.CodecV2.
func (c wireCodec) Marshal(v any) (mem.BufferSlice, error) {
	if e, ok := v.(*encoded); ok {
		return mem.BufferSlice{mem.SliceBuffer(e.data)}, nil // nobody counts references to it, nor changes it
	}
	return c.CodecV2.Marshal(v)
}
