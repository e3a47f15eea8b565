// Package pluginhost runs programs beside the server that serve one gRPC service over hashicorp/go-plugin: tuners and agents
// written elsewhere. It knows how such a program starts, what it says while it runs, and that it ends with the server;
// what the service means is the business of orchestrator/tuner/plugin and orchestrator/agent/plugin.
package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

const (
	// Protocol is the version of the services that both sides speak.
	Protocol = 1
	// Lifeline names the file descriptor that is closed when the server is gone, however it went.
	Lifeline = "OUTBID_PLUGIN_LIFELINE"
	// grace is how long a program that was asked to end may take.
	grace = 2 * time.Second
)

// Kind is which service a program serves.
type Kind string

// The kinds of programs.
const (
	Tuner Kind = "tuner"
	Agent Kind = "agent"
)

// Handshake is what go-plugin asks of the two sides: it is no secret, it only tells a plugin from other programs.
func Handshake(kind Kind) goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{
		ProtocolVersion: Protocol, MagicCookieKey: "OUTBID_PLUGIN", MagicCookieValue: string(kind),
	}
}

// A Program is one that runs. It is safe for concurrent use.
type Program struct {
	client *goplugin.Client
	conn   grpc.ClientConnInterface
	// cancel kills the process group while its leader runs; group is its number once it has started.
	cancel   context.CancelFunc
	group    atomic.Int64
	lifeline *os.File
	errors   *lastLines
}

// Start starts a program and waits until it says where it listens, at most so long. What it writes goes to the logger.
// ctx bounds the start, not the program's life: the caller must Close it.
func Start(
	ctx context.Context, kind Kind, command []string, patience time.Duration, logger *slog.Logger,
) (*Program, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer theirs.Close()
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	p := &Program{cancel: cancel, lifeline: ours, errors: &lastLines{log: logger.With("plugin", command[0])}}
	cmd := exec.CommandContext(life, command[0], command[1:]...)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Env = []string{Lifeline + "=3"}
	// A group of its own: what it starts ends with it, and a terminal's Ctrl-C is for the server alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	p.client = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  Handshake(kind),
		Plugins:          goplugin.PluginSet{string(kind): &service{}},
		Cmd:              cmd,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		StartTimeout:     patience,
		Stderr:           p.errors,
		SyncStdout:       &lastLines{log: p.errors.log},
		SyncStderr:       &lastLines{log: p.errors.log},
		Logger:           hclog.NewNullLogger(),
	})
	err = withoutPrivileges(func() error { return p.connect(kind) })
	if cmd.Process != nil {
		p.group.Store(int64(cmd.Process.Pid))
	}
	if err == nil {
		confine(cmd.Process.Pid, p.errors.log)
	}
	if err != nil {
		p.Kill()
		why := "it is no plugin of Outbid, or ended at once"
		if last := p.errors.last(); last != "" {
			return nil, fmt.Errorf("%s; it said %q: %w", why, last, firstLine(err))
		}
		return nil, fmt.Errorf("%s: %w", why, firstLine(err))
	}
	return p, nil
}

func (p *Program) connect(kind Kind) error {
	protocol, err := p.client.Client()
	if err != nil {
		return err
	}
	raw, err := protocol.Dispense(string(kind))
	if err != nil {
		return err
	}
	conn, ok := raw.(grpc.ClientConnInterface)
	if !ok {
		return errors.New("it has no connection")
	}
	p.conn = conn
	return nil
}

// Conn is the connection to its service.
func (p *Program) Conn() grpc.ClientConnInterface { return p.conn }

// Exited says whether the process is gone.
func (p *Program) Exited() bool { return p.client.Exited() }

// LastWords is the last line that it wrote to its standard error; "" if none. It has all come in once the program was
// closed.
func (p *Program) LastWords() string { return p.errors.last() }

// Close asks the program to end, and kills it after two seconds. It can be called more than once.
func (p *Program) Close() {
	// A process that is frozen would not even answer that it was asked; and one that it started may keep its pipes open.
	late := time.AfterFunc(grace, p.kill)
	p.client.Kill()
	late.Stop()
	p.cancel()
	_ = p.lifeline.Close()
}

// Kill ends the program at once, with all that it started.
func (p *Program) Kill() {
	p.kill()
	p.Close()
}

func (p *Program) kill() {
	p.cancel()
	if group := p.group.Load(); group > 0 {
		_ = killGroup(int(group))
	}
}

func killGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }

// Serve is the main function of a program written in Go: register adds its service. It returns when the server has no
// more use for it. Nothing may be written to standard output before.
func Serve(kind Kind, register func(grpc.ServiceRegistrar)) {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: Handshake(kind),
		Plugins:         goplugin.PluginSet{string(kind): &service{register: register}},
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			server := grpc.NewServer(append(opts, grpc.MaxRecvMsgSize(math.MaxInt32))...)
			go stopWithServer(server)
			return server
		},
		Logger: hclog.NewNullLogger(),
	})
}

// stopWithServer lets Serve return when the other end of the lifeline is closed. It lives as long as the process: Serve
// is all that the process does.
func stopWithServer(server *grpc.Server) {
	fd, err := strconv.Atoi(os.Getenv(Lifeline))
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, os.NewFile(uintptr(fd), "lifeline"))
	server.Stop()
}

// service ties any gRPC service to go-plugin.
type service struct {
	goplugin.NetRPCUnsupportedPlugin
	register func(grpc.ServiceRegistrar)
}

var _ goplugin.GRPCPlugin = (*service)(nil)

// GRPCServer is called in the program.
func (s *service) GRPCServer(_ *goplugin.GRPCBroker, registrar *grpc.Server) error {
	s.register(registrar)
	return nil
}

// GRPCClient is called in the server.
func (s *service) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}
