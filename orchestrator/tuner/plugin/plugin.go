// Package plugin is the boundary for tuners outside the binary: programs that serve TunerService over
// hashicorp/go-plugin. Serve makes such a program of a Go tuner; Launch starts one and makes a tuner.Tuner of it.
//
// Nothing that a plugin says is taken on trust: what breaks the contract of a tuner, a crash, and silence all become
// errors that name the plugin.
package plugin

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// protocol is the version of TunerService that both sides speak.
	protocol = 1
	// kind names the one service of a tuner plugin.
	kind = "tuner"
	// lifeline names the file descriptor that is closed when the orchestrator is gone, however it went.
	lifeline = "OUTBID_PLUGIN_LIFELINE"
)

// Handshake is what go-plugin asks of the two sides: it is no secret, it only tells a plugin from other programs.
func Handshake() goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{
		ProtocolVersion: protocol, MagicCookieKey: "OUTBID_PLUGIN", MagicCookieValue: kind,
	}
}

// A Factory is the tuner that a plugin serves.
type Factory struct {
	// Name and Version are shown to users.
	Name, Version string
	// New starts a sweep's tuner, Restore goes on from a snapshot. The plugin's own settings, if the sweep gives any,
	// are in Spec.Tuner.Plugin.Settings.
	New     func(tuner.Settings) (tuner.Tuner, error)
	Restore func(tuner.Settings, []byte) (tuner.Tuner, error)
}

// Serve is the main function of a plugin written in Go. It returns when the orchestrator has no more use for it.
// Nothing may be written to standard output before; standard error goes to the orchestrator's log.
func Serve(f Factory) {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: Handshake(),
		Plugins:         goplugin.PluginSet{kind: &service{factory: f, stderr: os.Stderr}},
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			server := grpc.NewServer(append(opts, grpc.MaxRecvMsgSize(math.MaxInt32))...)
			go stopWithOrchestrator(server)
			return server
		},
		Logger: hclog.NewNullLogger(),
	})
}

// stopWithOrchestrator lets Serve return when the other end of the lifeline is closed. It lives as long as the
// process: Serve is all that the process does.
func stopWithOrchestrator(server *grpc.Server) {
	fd, err := strconv.Atoi(os.Getenv(lifeline))
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, os.NewFile(uintptr(fd), "lifeline"))
	server.Stop()
}

// service ties TunerService to go-plugin.
type service struct {
	goplugin.NetRPCUnsupportedPlugin
	factory Factory
	// stderr is the process's own, which go-plugin puts another in the place of.
	stderr *os.File
}

var _ goplugin.GRPCPlugin = (*service)(nil)

// GRPCServer is called in the plugin.
func (s *service) GRPCServer(_ *goplugin.GRPCBroker, registrar *grpc.Server) error {
	outbidv1.RegisterTunerServiceServer(registrar, &server{factory: s.factory, stderr: s.stderr})
	return nil
}

// GRPCClient is called in the orchestrator.
func (s *service) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return outbidv1.NewTunerServiceClient(conn), nil
}

// name is how errors and logs call a plugin.
func name(command []string) string { return fmt.Sprintf("tuner plugin %s", command[0]) }
