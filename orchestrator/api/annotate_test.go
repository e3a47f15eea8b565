package api

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (c *fakeControl) Annotate(_ context.Context, req *outbidv1.AnnotateSweepRequest, actor string) error {
	return c.Command(context.Background(), req.GetSweep(), 0, actor)
}

// Users annotate the sweeps of their tenant, which viewers only read.
func TestAnnotateSweep(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	h.control.add("digits-1", "vision", 1)
	for name, tc := range map[string]struct {
		who  string
		req  *outbidv1.AnnotateSweepRequest
		code codes.Code
		text string
	}{
		"a user":         {"ann", &outbidv1.AnnotateSweepRequest{Sweep: "digits-1", Description: new("")}, codes.OK, ""},
		"tags":           {"ann", &outbidv1.AnnotateSweepRequest{Sweep: "digits-1", RemoveTags: []string{"old"}}, codes.OK, ""},
		"a viewer":       {"eve", &outbidv1.AnnotateSweepRequest{Sweep: "digits-1", AddTags: []string{"a"}}, codes.PermissionDenied, "AnnotateSweep needs"},
		"another tenant": {"bob", &outbidv1.AnnotateSweepRequest{Sweep: "digits-1", AddTags: []string{"a"}}, codes.NotFound, `there is no sweep "digits-1"`},
		"nothing":        {"ann", &outbidv1.AnnotateSweepRequest{Sweep: "digits-1"}, codes.InvalidArgument, "description: is missing; give it, add_tags or remove_tags"},
		"no sweep":       {"ann", &outbidv1.AnnotateSweepRequest{AddTags: []string{"a"}}, codes.InvalidArgument, "sweep"},
		"hostile text":   {"ann", &outbidv1.AnnotateSweepRequest{Sweep: "digits-1", Description: new("a\u202eb")}, codes.InvalidArgument, "description: has the control character U+202E"},
	} {
		_, err := h.dial(t, token(tc.who)).AnnotateSweep(t.Context(), tc.req)
		if status.Code(err) != tc.code || !strings.Contains(status.Convert(err).Message(), tc.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
