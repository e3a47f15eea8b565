package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
)

// Settings configures external bidders.
type Settings struct {
	// Deadline is how long a bid may take. A round waits at most this long for a bidder that hangs, once.
	Deadline time.Duration
	// Start is how long a program may take to start.
	Start time.Duration
	// FirstPause and LastPause limit the pauses before a program is started again. Each pause is half as long again
	// as the previous one.
	FirstPause, LastPause time.Duration
}

// Usual returns the default settings.
func Usual() Settings {
	return Settings{
		Deadline: 500 * time.Millisecond, Start: 30 * time.Second, FirstPause: time.Second, LastPause: time.Minute,
	}
}

// Pool combines all external bidders into one bidder.Bidder: each sweep's bid is made by the bidder that its state
// names. It is safe for concurrent use.
type Pool struct {
	ctx         context.Context //nolint:containedctx // a Bidder's methods have no context parameter
	end         context.CancelFunc
	supervisors map[string]*supervisor
	log         *slog.Logger
	up          chan struct{}
	running     sync.WaitGroup
}

var _ bidder.Bidder = (*Pool)(nil)

// Open starts bidders by name. It first looks for their programs, so that a missing program is an error at once. A
// program that does not start is retried. The caller must Close the pool.
func Open(ctx context.Context, commands map[string][]string, set Settings, log *slog.Logger) (*Pool, error) {
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		command := commands[name]
		if len(command) == 0 {
			return nil, fmt.Errorf("bidder %s: its command is empty; name its program and the arguments", name)
		}
		if _, err := exec.LookPath(command[0]); err != nil {
			return nil, fmt.Errorf("bidder %s: %w", name, err)
		}
	}
	p := &Pool{supervisors: map[string]*supervisor{}, log: log, up: make(chan struct{}, 1)}
	p.ctx, p.end = context.WithCancel(ctx)
	for name, command := range commands {
		k := newSupervisor(name, command, set, log, p.up)
		p.supervisors[name] = k
		p.running.Go(func() { k.run(p.ctx) })
	}
	return p, nil
}

// Names returns the bidders' names, sorted.
func (p *Pool) Names() []string { return slices.Sorted(maps.Keys(p.supervisors)) }

// Up receives a value when a bidder has come up.
func (p *Pool) Up() <-chan struct{} { return p.up }

// Wait returns when every bidder is up, or ctx ends.
func (p *Pool) Wait(ctx context.Context) error {
	for _, name := range p.Names() {
		if err := p.supervisors[name].wait(ctx); err != nil {
			return fmt.Errorf("bidder %s: %w", name, err)
		}
	}
	return nil
}

func (s *supervisor) wait(ctx context.Context) error {
	for {
		s.mu.Lock()
		up, down, changed := s.running != nil, s.down, s.changed
		s.mu.Unlock()
		if up {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), down)
		}
	}
}

// Close ends the bidders and waits for them. It may be called more than once.
func (p *Pool) Close() {
	p.end()
	p.running.Wait()
}

// Bid implements bidder.Bidder. The bidders are asked concurrently, each once with all its states. The failure of one
// bidder refuses only its own tables.
func (p *Pool) Bid(offer *bidder.Offer, states []*bidder.AppState) ([]bidder.Table, error) {
	asked := map[string][]int{}
	for i, s := range states {
		asked[s.Bidder] = append(asked[s.Bidder], i)
	}
	tables := make([]bidder.Table, len(states))
	var bids sync.WaitGroup
	for name, indexes := range asked {
		bids.Go(func() {
			theirs := make([]*bidder.AppState, len(indexes))
			for n, i := range indexes {
				theirs[n] = states[i]
			}
			got := p.ask(name, offer, theirs)
			for n, i := range indexes {
				tables[i] = got[n]
			}
		})
	}
	bids.Wait()
	return tables, nil
}

// ask returns one bidder's tables, or a refusal in each if it failed.
func (p *Pool) ask(name string, offer *bidder.Offer, states []*bidder.AppState) []bidder.Table {
	k := p.supervisors[name]
	if k == nil {
		return refused(states, fmt.Sprintf("this server has no bidder %q; it has %s", name, p.list()))
	}
	up, err := k.up()
	if err != nil {
		// The supervisor has logged it.
		return refused(states, fmt.Sprintf("bidder %s is down: %v", name, err))
	}
	tables, err := k.bid(p.ctx, up, offer, states)
	if err == nil {
		return tables
	}
	apps := make([]string, len(states))
	for i, s := range states {
		apps[i] = s.App
	}
	p.log.Warn("a bidder lost its bid for the round", "bidder", name, "round", offer.Round,
		"sweeps", strings.Join(apps, " "), "problem", err.Error())
	return refused(states, fmt.Sprintf("bidder %s lost its bid: %v", name, err))
}

func (p *Pool) list() string {
	if len(p.supervisors) == 0 {
		return "none"
	}
	return strings.Join(p.Names(), ", ")
}

func refused(states []*bidder.AppState, why string) []bidder.Table {
	tables := make([]bidder.Table, len(states))
	for i := range tables {
		tables[i].Refused = why
	}
	return tables
}
