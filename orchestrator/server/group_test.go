package server

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestGroupStopsInReverse(t *testing.T) {
	t.Parallel()
	g := newGroup()
	var order []string
	for _, name := range []string{"bottom", "middle", "top"} {
		g.start(t.Context(), name, func(ctx context.Context) error {
			<-ctx.Done()
			order = append(order, name) // one after the other, because stop waits for each
			return ctx.Err()
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.wait(ctx, nil); err != nil {
		t.Error(err)
	}
	if err := g.stop(); err != nil {
		t.Error(err)
	}
	if got := strings.Join(order, " "); got != "top middle bottom" {
		t.Errorf("stopped in the order %q", got)
	}
}

func TestGroupEndsWithItsParts(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, tc := range []struct {
		err  error
		want string
	}{{broken, "part: broken"}, {nil, "ended by itself"}} {
		g := newGroup()
		g.start(t.Context(), "part", func(context.Context) error { return tc.err })
		if err := g.wait(t.Context(), nil); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want %q", err, tc.want)
		}
		if err := g.stop(); err != nil {
			t.Errorf("what was told is told again: %v", err)
		}
	}
	g := newGroup()
	lost := make(chan struct{})
	close(lost)
	if err := g.wait(t.Context(), lost); !errors.Is(err, errDeposed) {
		t.Errorf("error %v, want %v", err, errDeposed)
	}
}
