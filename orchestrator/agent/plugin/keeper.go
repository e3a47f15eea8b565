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

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/outside"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// glance is how often a program that nobody asks is looked after.
const glance = time.Second

// A keeper keeps one agent's program running.
type keeper struct {
	name    string
	command []string
	set     Settings
	log     *slog.Logger
	// told hears when the program is up.
	told chan<- struct{}

	mu sync.Mutex
	// running is what answers now; nil while none does. Then down says why, and when it is started again.
	running *instance
	down    error
	next    time.Time
	// answered: it gave a bid that could be believed since it was started.
	answered bool
	// changed is closed when running or down change.
	changed chan struct{}
}

// An instance is one run of the program.
type instance struct {
	program *outside.Program
	service outbidv1.AgentServiceClient
	// wrong takes why it lost its bid; one reason is enough.
	wrong chan error
}

func newKeeper(name string, command []string, set Settings, log *slog.Logger, up chan<- struct{}) *keeper {
	return &keeper{
		name: name, command: command, set: set, log: log.With("agent", name), told: up,
		down: errors.New("it is being started"), changed: make(chan struct{}),
	}
}

// run starts the program, and starts it again whenever it ended or lost its bid, until ctx ends.
func (k *keeper) run(ctx context.Context) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = k.set.FirstPause, k.set.LastPause
	for ctx.Err() == nil {
		i, err := k.start(ctx)
		if err == nil {
			err = k.watch(ctx, i)
		}
		if ctx.Err() != nil {
			return
		}
		if k.believed() {
			pause.Reset()
		}
		wait := pause.NextBackOff()
		k.log.Warn("an agent is down; it is started again", "problem", err.Error(), "in", wait.Round(time.Millisecond))
		k.put(nil, err, time.Now().Add(wait))
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// start starts the program once.
func (k *keeper) start(ctx context.Context) (*instance, error) {
	program, err := outside.Start(ctx, outside.Agent, k.command, k.set.Start, k.log)
	if err != nil {
		return nil, fmt.Errorf("it does not start: %w", err)
	}
	i := &instance{program, outbidv1.NewAgentServiceClient(program.Conn()), make(chan error, 1)}
	asked, cancel := context.WithTimeout(ctx, k.set.Start)
	defer cancel()
	resp, err := i.service.Handshake(asked, &outbidv1.HandshakeRequest{Protocol: protocol})
	switch {
	case err != nil:
		program.Kill()
		return nil, fmt.Errorf("its handshake failed: %s", status.Convert(err).Message())
	case resp.GetProtocol() != protocol:
		program.Kill()
		return nil, fmt.Errorf("it speaks protocol %d, and this server %d", resp.GetProtocol(), protocol)
	}
	k.log.Info("an agent is up", "name", resp.GetName(), "version", resp.GetVersion())
	k.put(i, nil, time.Time{})
	select {
	case k.told <- struct{}{}:
	default: // somebody is to hear of another already
	}
	return i, nil
}

// watch returns when an instance has ended, with why.
func (k *keeper) watch(ctx context.Context, i *instance) error {
	look := time.NewTicker(glance)
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

// ended says how an instance ended, once it has.
func (i *instance) ended() error {
	i.program.Kill() // waits for what it had to say
	if last := i.program.LastWords(); last != "" {
		return fmt.Errorf("it ended; it said %q", last)
	}
	return errors.New("it ended")
}

func (k *keeper) put(i *instance, down error, next time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running, k.down, k.next = i, down, next
	close(k.changed)
	k.changed = make(chan struct{})
}

func (k *keeper) believed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	was := k.answered
	k.answered = false
	return was
}

// up returns what answers now, or why nothing does.
func (k *keeper) up() (*instance, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.running != nil {
		return k.running, nil
	}
	if wait := time.Until(k.next); wait > 0 {
		return nil, fmt.Errorf("%w; it is started again in %v", k.down, wait.Round(time.Millisecond))
	}
	return nil, k.down
}

// bid asks an instance. An error is why its apps have no bid in this round.
func (k *keeper) bid(
	ctx context.Context, i *instance, offer *agent.Offer, situations []*agent.AppState,
) ([]agent.Table, error) {
	ctx, cancel := context.WithTimeout(ctx, k.set.Deadline)
	defer cancel()
	resp, err := i.service.Bid(ctx, toRequest(offer, situations))
	var tables []agent.Table
	if err != nil {
		err = k.worded(i, err)
	} else {
		tables, err = answer(offer, situations, resp)
	}
	if err != nil {
		k.fail(i, err)
		return nil, err
	}
	k.mu.Lock()
	k.answered = true
	k.mu.Unlock()
	return tables, nil
}

// worded says what the failure of a call means.
func (k *keeper) worded(i *instance, err error) error {
	said := status.Convert(err)
	switch {
	case said.Code() == codes.DeadlineExceeded:
		return fmt.Errorf("it took more than %v to bid", k.set.Deadline)
	case i.program.Exited() || said.Code() == codes.Unavailable:
		return i.ended()
	default:
		return fmt.Errorf("it failed: %s", oneLine(said.Message()))
	}
}

// fail takes an instance out of use; run ends it and starts another.
func (k *keeper) fail(i *instance, why error) {
	k.mu.Lock()
	if k.running == i {
		k.running, k.down, k.next = nil, why, time.Time{}
	}
	k.mu.Unlock()
	select {
	case i.wrong <- why:
	default: // it ends for an earlier reason
	}
}
