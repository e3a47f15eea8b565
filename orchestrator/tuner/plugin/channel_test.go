package plugin

import (
	"context"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A plugin that ends or writes nonsense on the channel fails the call, which does not wait for more.
func TestABadAnswerOnTheChannelFailsTheCall(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer string
		want   codes.Code
		text   string
	}{
		"nothing":       {"", codes.Unavailable, "EOF"},
		"half a length": {"\x00\x00\x00", codes.Unavailable, "EOF"},
		"half a message": {
			"\x00\x00\x00\x00\x09half", codes.Unavailable, "EOF",
		},
		"an endless message": {"\x00\xff\xff\xff\xff", codes.Unavailable, "4294967295 bytes is too large"},
		"another message":    {"\x00\x00\x00\x00\x02\xff\xff", codes.Internal, "not a HandleResponse"},
		"an error":           {"\x03\x00\x00\x00\x07no seed", codes.InvalidArgument, "no seed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := net.Pipe()
			go func() {
				_, _ = readFrame(theirs)
				_, _ = theirs.Write([]byte(c.answer))
				_ = theirs.Close()
			}()
			_, err := channel{ours}.handle(t.Context(), &outbidv1.HandleRequest{})
			if said := status.Convert(err); said.Code() != c.want || !strings.Contains(said.Message(), c.text) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A call returns when its context ends, and the channel is not used again.
func TestACallOnTheChannelEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = readFrame(theirs)
		cancel()
	}()
	c := channel{ours}
	if _, err := c.handle(ctx, &outbidv1.HandleRequest{}); status.Code(err) != codes.Canceled {
		t.Errorf("%v", err)
	}
	if _, err := c.handle(t.Context(), &outbidv1.HandleRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
}
