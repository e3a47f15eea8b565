package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/pluginhost"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// pollInterval is the time between two checks whether a program that is not asked still runs.
const pollInterval = time.Second

// supervisor keeps one bidder's program running.
type supervisor struct {
	name    string
	command []string
	set     Settings
	log     *slog.Logger
	// told receives a value when the program is up.
	told chan<- struct{}

	mu sync.Mutex
	// running is the current instance, or nil. Then down says why, and next is when it is started again.
	running *instance
	down    error
	next    time.Time
	// answered is set if it has returned a valid bid since it was started.
	answered bool
	// changed is closed when running or down changes.
	changed chan struct{}
}

// instance is one run of the program.
type instance struct {
	program *pluginhost.Program
	service outbidv1.AgentServiceClient
	// wrong receives why the instance lost its bid; the first reason is enough.
	wrong chan error
}

func newSupervisor(name string, command []string, set Settings, log *slog.Logger, up chan<- struct{}) *supervisor {
	return &supervisor{
		name: name, command: command, set: set, log: log.With("bidder", name), told: up,
		down: errors.New("it is being started"), changed: make(chan struct{}),
	}
}

// run starts the program, and restarts it whenever it ended or lost its bid, until ctx ends.
func (s *supervisor) run(ctx context.Context) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = s.set.FirstPause, s.set.LastPause
	for ctx.Err() == nil {
		i, err := s.start(ctx)
		if err == nil {
			err = s.watch(ctx, i)
		}
		if ctx.Err() != nil {
			return
		}
		if s.takeAnswered() {
			pause.Reset()
		}
		wait := pause.NextBackOff()
		s.log.Warn("a bidder is down; it will be started again", "problem", err.Error(), "in", wait.Round(time.Millisecond))
		s.setRunning(nil, err, time.Now().Add(wait))
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// start starts the program once.
func (s *supervisor) start(ctx context.Context) (*instance, error) {
	program, err := pluginhost.Start(ctx, pluginhost.Bidder, s.command, s.set.Start, s.log)
	if err != nil {
		return nil, fmt.Errorf("it does not start: %w", err)
	}
	i := &instance{program, outbidv1.NewAgentServiceClient(program.Conn()), make(chan error, 1)}
	asked, cancel := context.WithTimeout(ctx, s.set.Start)
	defer cancel()
	resp, err := i.service.Handshake(asked, &outbidv1.HandshakeRequest{Protocol: protocol})
	switch {
	case err != nil:
		program.Kill()
		return nil, fmt.Errorf("its handshake failed: %s", sanitize.Line(status.Convert(err).Message(), longestReason))
	case resp.GetProtocol() != protocol:
		program.Kill()
		return nil, fmt.Errorf("it uses protocol %d, but this server uses protocol %d", resp.GetProtocol(), protocol)
	}
	s.log.Info("a bidder is up", "name", sanitize.Line(resp.GetName(), limits.Name), "version", sanitize.Line(resp.GetVersion(), limits.Name))
	s.setRunning(i, nil, time.Time{})
	select {
	case s.told <- struct{}{}:
	default: // a notification is already pending
	}
	return i, nil
}

// watch waits until an instance has ended, and returns why.
func (s *supervisor) watch(ctx context.Context, i *instance) error {
	look := time.NewTicker(pollInterval)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			i.program.Close()
			return ctx.Err()
		case why := <-i.wrong:
			i.program.Kill()
			return why
		case <-look.C:
			if i.program.Exited() {
				return i.ended()
			}
		}
	}
}

// ended describes how an instance ended.
func (i *instance) ended() error {
	i.program.Kill() // waits for its output
	if last := i.program.LastWords(); last != "" {
		return fmt.Errorf("it ended; it said %q", last)
	}
	return errors.New("it ended")
}

func (s *supervisor) setRunning(i *instance, down error, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.down, s.next = i, down, next
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *supervisor) takeAnswered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.answered
	s.answered = false
	return was
}

// up returns the current instance, or why no instance runs.
func (s *supervisor) up() (*instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		return s.running, nil
	}
	if wait := time.Until(s.next); wait > 0 {
		return nil, fmt.Errorf("%w; it will be started again in %v", s.down, wait.Round(time.Millisecond))
	}
	return nil, s.down
}

// bid asks an instance. The error says why its sweeps have no bid in this round.
func (s *supervisor) bid(
	ctx context.Context, i *instance, offer *bidder.Offer, states []*bidder.AppState,
) ([]bidder.Table, error) {
	ctx, cancel := context.WithTimeout(ctx, s.set.Deadline)
	defer cancel()
	resp, err := i.service.Bid(ctx, toRequest(offer, states))
	var tables []bidder.Table
	if err != nil {
		err = s.describeFailure(i, err)
	} else {
		tables, err = answer(offer, states, resp)
	}
	if err != nil {
		s.fail(i, err)
		return nil, err
	}
	s.mu.Lock()
	s.answered = true
	s.mu.Unlock()
	return tables, nil
}

// describeFailure describes the failure of a call.
func (s *supervisor) describeFailure(i *instance, err error) error {
	said := status.Convert(err)
	switch {
	case said.Code() == codes.DeadlineExceeded:
		return fmt.Errorf("it took more than %v to bid", s.set.Deadline)
	case i.program.Exited() || said.Code() == codes.Unavailable:
		return i.ended()
	default:
		return fmt.Errorf("it failed: %s", sanitize.Line(said.Message(), longestReason))
	}
}

// fail takes an instance out of use; run ends it and starts another one.
func (s *supervisor) fail(i *instance, why error) {
	s.mu.Lock()
	if s.running == i {
		s.running, s.down, s.next = nil, why, time.Time{}
	}
	s.mu.Unlock()
	select {
	case i.wrong <- why:
	default: // it ends for an earlier reason
	}
}
