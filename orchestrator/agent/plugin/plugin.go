// Package plugin is the boundary for agents outside the binary: programs that serve AgentService over
// hashicorp/go-plugin. Serve makes such a program of a Go agent; Open starts those that the server was told of and makes
// one agent.Agent of them all.
//
// Nothing that a plugin says is taken on trust. One that crashes, hangs, bids for what was not offered or answers
// nonsense loses its bid for the round, is named in the log, and is started again after a pause that grows; nobody
// waits for it.
package plugin

import (
	"context"
	"fmt"
	"os"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/pluginhost"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// protocol is the version of AgentService that both sides speak.
const protocol = pluginhost.Protocol

// A Factory is the agent that a plugin serves.
type Factory struct {
	// Name and Version are shown to users.
	Name, Version string
	Agent         agent.Agent
}

// Serve is the main function of a plugin written in Go. It returns when the server has no more use for it. Nothing may be
// written to standard output before; standard error goes to the server's log.
func Serve(f Factory) {
	// go-plugin puts another in the place of the process's own.
	stderr := os.Stderr
	pluginhost.Serve(pluginhost.Agent, func(registrar grpc.ServiceRegistrar) {
		outbidv1.RegisterAgentServiceServer(registrar, &server{factory: f, stderr: stderr})
	})
}

// server is AgentService over one agent.
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
		return nil, status.Errorf(codes.FailedPrecondition, "protocol %d is unknown, this plugin speaks %d",
			req.GetProtocol(), protocol)
	}
	// What is written to os.Stderr would go over the connection, where the last words before a crash are lost.
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
	tables, err := s.factory.Agent.Bid(offer, states)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if len(tables) != len(states) {
		return nil, status.Error(codes.Internal, fmt.Sprintf("answered %d tables to %d states",
			len(tables), len(states)))
	}
	return toResponse(tables), nil
}
