package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// group runs the parts of a server. It stops them in reverse order, so that each part can use those started before it
// while it stops.
type group struct {
	parts []*part
	ended chan *part
}

// part is one part of a server.
type part struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func newGroup() *group { return &group{ended: make(chan *part)} }

// start runs a part until the group stops it. The end of ctx does not stop it; only ctx's values are used.
func (g *group) start(ctx context.Context, name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &part{name: name, cancel: cancel, done: make(chan struct{})}
	g.parts = append(g.parts, p)
	go func() {
		p.err = run(ctx)
		close(p.done)
		select {
		case g.ended <- p:
		case <-ctx.Done():
		}
	}()
}

// wait returns when ctx ends, when lost is closed, or when a part ends by itself, which is an error.
func (g *group) wait(ctx context.Context, lost <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return nil
	case <-lost:
		return errDeposed
	case p := <-g.ended:
		if p.err == nil {
			return fmt.Errorf("%s ended by itself", p.name)
		}
		return fmt.Errorf("%s: %w", p.name, p.err)
	}
}

// stop stops the parts in reverse order, and returns their errors. Parts that ended by themselves were reported by
// wait.
func (g *group) stop() error {
	var errs []error
	for _, p := range slices.Backward(g.parts) {
		before := false
		select {
		case <-p.done:
			before = true
		default:
		}
		p.cancel()
		<-p.done
		if p.err != nil && !before && !errors.Is(p.err, context.Canceled) {
			errs = append(errs, fmt.Errorf("%s: %w", p.name, p.err))
		}
	}
	g.parts = nil
	return errors.Join(errs...)
}

// errDeposed ends a server that no longer leads.
var errDeposed = errors.New("another server has taken over; this one has stopped")
