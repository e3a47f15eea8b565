package api

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestLogsAreSearched(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 1)
	for i := range 50 {
		h.logs.print(0, fmt.Sprintf("Line %d\n", i))
	}
	search := func(req *outbidv1.StreamLogsRequest) ([]string, error) {
		req.Sweep = "digits-1"
		stream, err := h.dial(t, "").StreamLogs(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for {
			line, err := stream.Recv()
			if err != nil {
				return found, err
			}
			found = append(found, line.GetLine())
		}
	}
	for _, c := range []struct {
		text string
		tail int32
		want []string
	}{
		{"line 4", 3, []string{"Line 47", "Line 48", "Line 49"}},
		{"LINE 1", 0, []string{"Line 1", "Line 10", "Line 11", "Line 12", "Line 13", "Line 14", "Line 15", "Line 16", "Line 17", "Line 18", "Line 19"}},
		{"line 2", 100, []string{"Line 2", "Line 20", "Line 21", "Line 22", "Line 23", "Line 24", "Line 25", "Line 26", "Line 27", "Line 28", "Line 29"}},
		{"nothing", 5, nil},
	} {
		if found, _ := search(&outbidv1.StreamLogsRequest{Contains: c.text, Tail: c.tail}); !slices.Equal(found, c.want) {
			t.Errorf("%q: %q, want %q", c.text, found, c.want)
		}
	}
	if _, err := search(&outbidv1.StreamLogsRequest{Contains: "x", Follow: true}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("with follow: %v", err)
	}
}
