package api

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestDeleteSweep(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	h.control.add("digits-1", "vision", 1)
	h.control.add("words-2", "speech", 1)
	del := func(who, sweep string, force bool) error {
		_, err := h.dial(t, token(who)).DeleteSweep(t.Context(), &outbidv1.DeleteSweepRequest{Sweep: sweep, Force: force})
		return err
	}
	for _, tc := range []struct {
		who, sweep string
		want       codes.Code
	}{
		{"ann", "", codes.InvalidArgument},
		{"ann", "digits-9", codes.NotFound},
		{"ann", "words-2", codes.NotFound},
		{"eve", "digits-1", codes.PermissionDenied},
		{"ann", "digits-1", codes.FailedPrecondition},
	} {
		if err := del(tc.who, tc.sweep, false); status.Code(err) != tc.want {
			t.Errorf("%s deletes %q: %v, want %s", tc.who, tc.sweep, err, tc.want)
		}
	}
	h.control.end("digits-1")
	for range 2 { // the second time it is already deleted
		if err := del("ann", "digits-1", false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.dial(t, token("ann")).GetSweep(t.Context(), &outbidv1.GetSweepRequest{Sweep: "digits-1"}); status.Code(err) !=
		codes.NotFound || !strings.Contains(err.Error(), "ann deleted it at 2001-09-09T01:46:40Z") {
		t.Errorf("its owner asks for it: %v", err)
	}
	if _, err := h.dial(t, token("bob")).GetSweep(t.Context(), &outbidv1.GetSweepRequest{Sweep: "digits-1"}); status.Code(err) !=
		codes.NotFound || strings.Contains(err.Error(), "deleted") {
		t.Errorf("another tenant asks for it: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- del("bob", "words-2", true) }()
	h.control.awaitActor(t, "bob") // the server stopped it first
	h.control.end("words-2")
	if err := <-done; err != nil {
		t.Errorf("a running sweep, with force: %v", err)
	}
	resp, body := h.call(t, "DELETE", "/v1/sweeps/words-2?force=true", "", "Authorization", "Bearer "+token("bob"))
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"actor":"bob"`) {
		t.Errorf("REST: %d %s", resp.StatusCode, body)
	}
}
