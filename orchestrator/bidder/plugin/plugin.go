// Package plugin runs bidders outside the binary: programs that serve AgentService over hashicorp/go-plugin. Serve is
// the main function of such a program in Go. Open starts the configured programs and combines them into one
// bidder.Bidder.
//
// The answers of plugins are checked. A plugin that crashes, hangs, bids for devices that were not offered or returns
// invalid answers loses its bid for the round, is logged, and is restarted after a growing pause. Other sweeps do not
// wait for it.
package plugin

import (
	"context"
	"fmt"
	"os"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/pluginhost"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// protocol is the version of AgentService that both sides use.
const protocol = pluginhost.Protocol

// Factory describes the bidder that a plugin serves.
type Factory struct {
	// Name and Version are shown to users.
	Name, Version string
	Bidder        bidder.Bidder
}

// Serve is the main function of a plugin written in Go. It returns when the server does not need the plugin any more.
// The plugin must not write to standard output before; its standard error goes to the server's log.
func Serve(f Factory) {
	// go-plugin replaces os.Stderr.
	stderr := os.Stderr
	pluginhost.Serve(pluginhost.Bidder, func(registrar grpc.ServiceRegistrar) {
		outbidv1.RegisterAgentServiceServer(registrar, &server{factory: f, stderr: stderr})
	})
}

// server implements AgentService with one bidder.
type server struct {
	outbidv1.UnimplementedAgentServiceServer
	factory Factory
	stderr  *os.File
	mu      sync.Mutex
}

// Handshake implements outbidv1.AgentServiceServer.
func (s *server) Handshake(
	_ context.Context, req *outbidv1.HandshakeRequest,
) (*outbidv1.HandshakeResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.GetProtocol() != protocol {
		return nil, status.Errorf(codes.FailedPrecondition, "protocol %d is not supported; this plugin uses protocol %d",
			req.GetProtocol(), protocol)
	}
	// go-plugin would send os.Stderr over the connection, where the last lines before a crash get lost.
	os.Stderr = s.stderr
	return &outbidv1.HandshakeResponse{
		Protocol: protocol, Name: s.factory.Name, Version: s.factory.Version,
	}, nil
}

// Bid implements outbidv1.AgentServiceServer.
func (s *server) Bid(_ context.Context, req *outbidv1.BidRequest) (*outbidv1.BidResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	offer, states := fromRequest(req)
	tables, err := s.factory.Bidder.Bid(offer, states)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if len(tables) != len(states) {
		return nil, status.Error(codes.Internal, fmt.Sprintf("returned %d tables for %d states",
			len(tables), len(states)))
	}
	return toResponse(tables), nil
}
