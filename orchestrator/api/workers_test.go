package api

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// oneToken admits workers with the token "right".
type oneToken struct{}

func (oneToken) NewToken(_ context.Context, _ string, life time.Duration) (string, time.Time, error) {
	return "right", time.Unix(0, 0).Add(life), nil
}

func (oneToken) Join(_ context.Context, token, node, _ string) (*outbidv1.JoinWorkerResponse, error) {
	if token != "right" {
		return nil, fmt.Errorf("%w: it is wrong", bus.ErrJoinToken)
	}
	return &outbidv1.JoinWorkerResponse{Node: node}, nil
}

func (oneToken) Remove(_ context.Context, node string) error {
	if node != "here" {
		return fmt.Errorf("worker %s: %w", node, bus.ErrStranger)
	}
	return nil
}

// TestWhoMayTakeWorkersInAndOut checks that only admins create tokens and remove workers, and that a join token
// suffices to join.
func TestWhoMayTakeWorkersInAndOut(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens, c.Workers = testTokens(t), oneToken{} })
	key, err := identity.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]codes.Code{
		token("root"): codes.OK, token("ann"): codes.PermissionDenied, token("eve"): codes.PermissionDenied,
		token("all"): codes.PermissionDenied, "": codes.Unauthenticated,
	} {
		c := h.dial(t, name)
		if _, err := c.NewWorkerToken(t.Context(), &outbidv1.NewWorkerTokenRequest{Node: "n"}); status.Code(err) != want {
			t.Errorf("a token for %.12q: %v", name, err)
		}
		if _, err := c.RemoveWorker(t.Context(), &outbidv1.RemoveWorkerRequest{Node: "here"}); status.Code(err) != want {
			t.Errorf("removing for %.12q: %v", name, err)
		}
		join := func(token, public string) error {
			_, err := c.JoinWorker(t.Context(), &outbidv1.JoinWorkerRequest{Token: token, PublicKey: public})
			return err
		}
		if err := join("right", key.Public()); err != nil {
			t.Errorf("joining for %.12q: %v", name, err)
		}
		if err := join("wrong", key.Public()); status.Code(err) != codes.PermissionDenied {
			t.Errorf("joining with a wrong token: %v", err)
		}
		if err := join("right", "x"); status.Code(err) != codes.InvalidArgument {
			t.Errorf("joining with an invalid key: %v", err)
		}
	}
	if _, err := h.dial(t, token("root")).RemoveWorker(t.Context(), &outbidv1.RemoveWorkerRequest{Node: "gone"}); status.Code(err) != codes.NotFound {
		t.Errorf("removing an unknown worker: %v", err)
	}
}
