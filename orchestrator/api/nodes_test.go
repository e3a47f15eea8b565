package api

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestControlNode(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	h.control.nodes = []*outbidv1.Node{{Info: &outbidv1.NodeInfo{Name: "gpu-7"}}}
	const drain = outbidv1.NodeCommand_NODE_COMMAND_DRAIN
	for name, tc := range map[string]struct {
		who  string
		req  *outbidv1.ControlNodeRequest
		want codes.Code
		says string
	}{
		"admin":      {"root", &outbidv1.ControlNodeRequest{Node: "gpu-7", Command: drain, Reason: "a fan"}, codes.OK, ""},
		"user":       {"ann", &outbidv1.ControlNodeRequest{Node: "gpu-7", Command: drain}, codes.PermissionDenied, ""},
		"no node":    {"root", &outbidv1.ControlNodeRequest{Command: drain}, codes.InvalidArgument, "node: is missing"},
		"no command": {"root", &outbidv1.ControlNodeRequest{Node: "gpu-7"}, codes.InvalidArgument, "command: is missing"},
		"long reason": {
			"root", &outbidv1.ControlNodeRequest{Node: "gpu-7", Command: drain, Reason: strings.Repeat("x", 1<<14)}, codes.InvalidArgument,
			"reason: has 16384 bytes; at most",
		},
	} {
		resp, err := h.dial(t, token(tc.who)).ControlNode(t.Context(), tc.req)
		if status.Code(err) != tc.want || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && resp.GetNode().GetInfo().GetName() != "gpu-7" {
			t.Errorf("%s: %v", name, resp)
		}
	}
	if diff := cmp.Diff([]string{`NODE_COMMAND_DRAIN gpu-7 "a fan" by root`}, h.control.commands); diff != "" {
		t.Error(diff)
	}
}

func (c *fakeControl) StopTrial(ctx context.Context, sweep string, _ int32, _, actor string) error {
	return c.Command(ctx, sweep, 0, actor)
}

func (c *fakeControl) RetryTrial(ctx context.Context, sweep string, _ int32, _, actor string) error {
	return c.Command(ctx, sweep, 0, actor)
}

func (c *fakeControl) ControlNode(_ context.Context, node string, command outbidv1.NodeCommand, reason, actor string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commands = append(c.commands, fmt.Sprintf("%s %s %q by %s", command, node, reason, actor))
	return c.fail
}

// Other tenants' sweeps are not named, neither on devices nor in faults, but their devices are in use.
func TestNodesNameOnlyOwnSweeps(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	h.control.add("digits-1", "vision", 1)
	h.control.add("words-2", "speech", 1)
	node := &outbidv1.Node{
		Info: &outbidv1.NodeInfo{Name: "a"},
		Uses: []*outbidv1.DeviceUse{
			{Device: 0, Fork: &outbidv1.ForkRef{Sweep: "digits-1"}}, {Device: 1, Fork: &outbidv1.ForkRef{Sweep: "words-2", Trial: 3}},
		},
		Faults: []*outbidv1.NodeFault{{Sweep: "words-2"}, {Sweep: "digits-1"}, {Reason: "start words.py", Trials: []string{"words-2/1", "digits-1/0"}}},
	}
	got := redactNode(node, hiddenFrom(Principal{Name: "ann", Tenant: "vision", Role: RoleUser}, h.control))
	text := got.String()
	if len(got.GetUses()) != 2 || got.GetUses()[1].GetFork() == nil || len(got.GetFaults()) != 2 || strings.Contains(text, "words") || !strings.Contains(text, "digits-1/0") {
		t.Errorf("ann sees %s", text)
	}
	if !strings.Contains(node.String(), "words-2/1") {
		t.Error("the server's own copy was changed")
	}
}
