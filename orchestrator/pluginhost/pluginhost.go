// Package pluginhost runs programs next to the server that serve one gRPC service over hashicorp/go-plugin: external
// tuners and bidders. It handles how such a program starts, its output, and that it ends with the server. The
// services are defined in orchestrator/tuner/plugin and orchestrator/bidder/plugin.
package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
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
	// Protocol is the version of the services that both sides use.
	Protocol = 1
	// Lifeline names the variable with the file descriptor that is closed when the server is gone, however it ended.
	Lifeline = "OUTBID_PLUGIN_LIFELINE"
	// grace is how long a program may take to end when it is asked to.
	grace = 2 * time.Second
)

// Kind is the service that a program serves.
type Kind string

// The kinds of programs.
const (
	Tuner  Kind = "tuner"
	Bidder Kind = "agent" // as in the handshake of 1.0.0-rc.1
)

// Handshake returns go-plugin's handshake for both sides. It is not a secret; it only distinguishes plugins from
// other programs.
func Handshake(kind Kind) goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{
		ProtocolVersion: Protocol, MagicCookieKey: "OUTBID_PLUGIN", MagicCookieValue: string(kind),
	}
}

// Program is a running program. It is safe for concurrent use.
type Program struct {
	client *goplugin.Client
	conn   grpc.ClientConnInterface
	// cancel kills the process group while its leader runs. group is its id once it has started.
	cancel   context.CancelFunc
	group    atomic.Int64
	lifeline *os.File
	// folder has its socket. Close deletes it, because a program that is killed leaves it behind.
	folder string
	// channel is the server's end of the program's Channel.
	channel net.Conn
	errors  *lastLines
}

// Start starts a program and waits at most patience until it reports its address. Its output goes to the logger. ctx
// limits the start, not the program's life: the caller must Close it.
func Start(
	ctx context.Context, kind Kind, command []string, patience time.Duration, logger *slog.Logger,
) (*Program, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("create a pipe: %w", err)
	}
	defer theirs.Close()
	folder, err := os.MkdirTemp("", "outbid-plugin-")
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("create a folder for the socket of a plugin: %w", err)
	}
	theirChannel, channel, err := newChannel()
	if err != nil {
		_ = ours.Close()
		_ = os.RemoveAll(folder)
		return nil, err
	}
	defer theirChannel.Close()
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	p := &Program{
		cancel: cancel, lifeline: ours, folder: folder, channel: channel,
		errors: &lastLines{log: logger.With("plugin", command[0])},
	}
	cmd := exec.CommandContext(life, command[0], command[1:]...)
	cmd.ExtraFiles = []*os.File{theirs, theirChannel}
	cmd.Env = []string{Lifeline + "=3", Channel + "=4", goplugin.EnvUnixSocketDir + "=" + folder}
	// A separate process group: its children end with it, and Ctrl-C in a terminal only reaches the server.
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
		why := "it is not an Outbid plugin, or it exited at once"
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
		return errors.New("the plugin does not have a connection")
	}
	p.conn = conn
	return nil
}

// Conn returns the connection to its service.
func (p *Program) Conn() grpc.ClientConnInterface { return p.conn }

// Channel returns the server's end of the program's Channel.
func (p *Program) Channel() net.Conn { return p.channel }

// Exited reports whether the process is gone.
func (p *Program) Exited() bool { return p.client.Exited() }

// LastWords returns the last line of its standard error, or "". It is complete only after Close.
func (p *Program) LastWords() string { return p.errors.last() }

// Close asks the program to end, and kills it after two seconds. It may be called more than once.
func (p *Program) Close() {
	// A frozen process would not even answer the request, and a child of it may keep its pipes open.
	late := time.AfterFunc(grace, p.kill)
	p.client.Kill()
	late.Stop()
	p.cancel()
	_ = p.lifeline.Close()
	_ = p.channel.Close()
	_ = os.RemoveAll(p.folder)
}

// Kill kills the program with all its children.
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

// Serve is the main function of a program written in Go; register adds its service. It returns when the server does
// not need the program any more. The program must not write to standard output before.
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

// stopWithServer makes Serve return when the server's end of the lifeline is closed. It runs until the process ends,
// because Serve is all that the process does.
func stopWithServer(server *grpc.Server) {
	fd, err := strconv.Atoi(os.Getenv(Lifeline))
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, os.NewFile(uintptr(fd), "lifeline"))
	server.Stop()
}

// service adapts any gRPC service to go-plugin.
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
