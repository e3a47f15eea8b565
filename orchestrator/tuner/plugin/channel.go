package plugin

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A channel carries HandleRequests to a plugin without gRPC, whose Python server needs a tenth of a core for 300 calls
// per second and switches between threads 20 times a call. The frames are described at TunerService.
type channel struct{ conn net.Conn }

// handle sends a request and returns the answer. Its errors are gRPC statuses. After an error the channel is closed,
// because the rest of the answer could follow.
func (c channel) handle(ctx context.Context, req *outbidv1.HandleRequest) (*outbidv1.HandleResponse, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() })
	defer stop()
	code, answer, err := c.exchange(req)
	if ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if err != nil {
		_ = c.conn.Close()
		return nil, status.Errorf(codes.Unavailable, "the channel to the plugin: %v", err)
	}
	if code != codes.OK {
		return nil, status.Error(code, string(answer))
	}
	resp := new(outbidv1.HandleResponse)
	if err := proto.Unmarshal(answer, resp); err != nil {
		return nil, status.Errorf(codes.Internal, "its answer on the channel is not a HandleResponse: %v", err)
	}
	return resp, nil
}

func (c channel) exchange(req *outbidv1.HandleRequest) (codes.Code, []byte, error) {
	message, err := proto.Marshal(req)
	if err != nil {
		return 0, nil, err
	}
	if err := writeFrame(c.conn, nil, message); err != nil {
		return 0, nil, err
	}
	var code [1]byte
	if _, err := io.ReadFull(c.conn, code[:]); err != nil {
		return 0, nil, err
	}
	answer, err := readFrame(c.conn)
	return codes.Code(code[0]), answer, err
}

// serveChannel answers requests on the program's end of a channel until the server closes it.
func serveChannel(conn io.ReadWriter, service outbidv1.TunerServiceServer) error {
	for {
		message, err := readFrame(conn)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		code, answer := answerFrame(message, service)
		if err := writeFrame(conn, []byte{byte(code)}, answer); err != nil {
			return err
		}
	}
}

// answerFrame returns the status and the answer to the message of a request.
func answerFrame(message []byte, service outbidv1.TunerServiceServer) (codes.Code, []byte) {
	req := new(outbidv1.HandleRequest)
	if err := proto.Unmarshal(message, req); err != nil {
		return codes.InvalidArgument, []byte(err.Error())
	}
	resp, err := service.Handle(context.Background(), req)
	if err != nil {
		s := status.Convert(err)
		return s.Code(), []byte(s.Message())
	}
	answer, err := proto.Marshal(resp)
	if err != nil {
		return codes.Internal, []byte(err.Error())
	}
	return codes.OK, answer
}

// writeFrame writes a prefix, a message's length and the message, at once.
func writeFrame(w io.Writer, prefix, message []byte) error {
	if len(message) > math.MaxInt32 {
		return fmt.Errorf("a message of %d bytes is too large", len(message))
	}
	frame := binary.BigEndian.AppendUint32(prefix, uint32(len(message))) //nolint:gosec // checked above
	_, err := w.Write(append(frame, message...))
	return err
}

// readFrame reads a message with its length. The error is io.EOF only if nothing could be read.
func readFrame(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	size := int64(binary.BigEndian.Uint32(length[:]))
	if size > math.MaxInt32 {
		return nil, fmt.Errorf("a message of %d bytes is too large", size)
	}
	var message bytes.Buffer // grows with the received bytes, not with the announced length
	if _, err := io.CopyN(&message, r, size); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return message.Bytes(), nil
}
