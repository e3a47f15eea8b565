package api

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// clusterService has the calls about the server, its nodes and its ledger.
type clusterService struct {
	control Control
	// verify checks every file that the server can rebuild; it may be nil.
	verify func(context.Context)
	// simulated are the policies that SimulateLedger can simulate.
	simulated []string
}

// ListNodes implements the service. Devices are shared, so every caller sees which of them are in use, but not the
// names of other tenants' sweeps.
func (s *clusterService) ListNodes(ctx context.Context, _ *outbidv1.ListNodesRequest) (*outbidv1.ListNodesResponse, error) {
	nodes := slices.Clone(s.control.Nodes())
	if who := caller(ctx); who.Role != RoleAdmin && who.Tenant != AnyTenant {
		for i, n := range nodes {
			nodes[i] = redactNode(n, hiddenFrom(who, s.control))
		}
	}
	return &outbidv1.ListNodesResponse{Nodes: nodes}, nil
}

// redactNode returns a node without the names of hidden sweeps, and without the reasons why their trials failed.
func redactNode(n *outbidv1.Node, hidden func(sweep string) bool) *outbidv1.Node {
	shown := proto.CloneOf(n)
	for _, u := range shown.GetUses() {
		if hidden(u.GetFork().GetSweep()) {
			u.Fork = &outbidv1.ForkRef{}
		}
	}
	shown.Faults = slices.DeleteFunc(shown.GetFaults(), func(f *outbidv1.NodeFault) bool {
		all := len(f.GetTrials())
		f.Trials = slices.DeleteFunc(f.GetTrials(), func(trial string) bool {
			sweep, _, _ := strings.Cut(trial, "/")
			return hidden(sweep)
		})
		if len(f.GetTrials()) < all { // the reason may quote a hidden trial's program
			f.Reason = "trials failed there"
		}
		return f.GetSweep() != "" && hidden(f.GetSweep()) // it keeps only trials of that sweep off
	})
	return shown
}

// ControlNode implements the service.
func (s *clusterService) ControlNode(ctx context.Context, req *outbidv1.ControlNodeRequest) (*outbidv1.ControlNodeResponse, error) {
	if req.GetNode() == "" {
		return nil, fieldError("node", "is missing")
	}
	if req.GetCommand() == outbidv1.NodeCommand_NODE_COMMAND_UNSPECIFIED {
		return nil, fieldError("command", "is missing; want NODE_COMMAND_CORDON, NODE_COMMAND_DRAIN, NODE_COMMAND_EVICT or NODE_COMMAND_UNCORDON")
	}
	if n := len(req.GetReason()); n > limits.Detail {
		return nil, fieldError("reason", "has %d bytes; at most %d", n, limits.Detail)
	}
	if err := s.control.ControlNode(ctx, req.GetNode(), req.GetCommand(), req.GetReason(), caller(ctx).Name); err != nil {
		return nil, err
	}
	for _, n := range s.control.Nodes() {
		if n.GetInfo().GetName() == req.GetNode() {
			return &outbidv1.ControlNodeResponse{Node: n}, nil
		}
	}
	return &outbidv1.ControlNodeResponse{}, nil
}

// GetServerInfo implements the service.
func (s *clusterService) GetServerInfo(ctx context.Context, req *outbidv1.GetServerInfoRequest) (
	*outbidv1.GetServerInfoResponse, error,
) {
	if req.GetThorough() && s.verify != nil {
		s.verify(ctx)
	}
	resp, who := proto.CloneOf(s.control.Info()), caller(ctx)
	resp.SimulatedPolicies = s.simulated
	resp.Caller = &outbidv1.Caller{Name: who.Name, Tenant: who.Tenant, Role: string(who.Role), Local: who.local}
	return resp, nil
}

// ReadLedger implements the service.
func (s *clusterService) ReadLedger(
	req *outbidv1.ReadLedgerRequest, stream grpc.ServerStreamingServer[outbidv1.ReadLedgerResponse],
) error {
	return s.control.Ledger(stream.Context(), max(1, req.GetFromSeq()), func(b *outbidv1.Batch) error {
		return stream.Send(&outbidv1.ReadLedgerResponse{Batch: b})
	})
}
