package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// health computes the server's health. It caches the result for a moment.
type health struct {
	version, natsURL string
	started          time.Time
	nc               *nats.Conn
	store            objects.Store
	// lines are checks of other parts; nil for a check that does not apply.
	lines []func() *outbidv1.Check

	mu     sync.Mutex
	at     time.Time
	checks []*outbidv1.Check
	// held maps each worker of this process to the device for which its trials wait.
	held map[string]string
}

// setWaiting sets the device for which a worker's trials wait, and why; "" if none waits.
func (h *health) setWaiting(worker, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held == nil {
		h.held = map[string]string{}
	}
	h.held[worker] = why
	h.at = time.Time{}
}

const (
	// healthFresh is how long a result is cached.
	healthFresh = 2 * time.Second
	// healthTimeout limits one check.
	healthTimeout = 3 * time.Second
)

// info returns the answer of GetServerInfo; control adds its part.
func (h *health) info() *outbidv1.GetServerInfoResponse {
	resp := &outbidv1.GetServerInfoResponse{
		Version: h.version, Nats: h.natsURL, Store: h.store.String(), Started: timestamppb.New(h.started),
	}
	for _, c := range h.current() {
		resp.Checks = append(resp.Checks, proto.CloneOf(c))
	}
	for _, line := range h.lines {
		if c := line(); c != nil {
			resp.Checks = append(resp.Checks, c)
		}
	}
	return resp
}

// natsAnswers reports whether NATS answers now.
func (h *health) natsAnswers() bool {
	h.mu.Lock()
	h.at = time.Time{}
	h.mu.Unlock()
	return slices.ContainsFunc(h.current(), func(c *outbidv1.Check) bool { return c.GetName() == natsCheck && c.GetOk() })
}

// current returns the checks of NATS, the store and devices, which must not be changed.
func (h *health) current() []*outbidv1.Check {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); now.Sub(h.at) > healthFresh {
		h.checks = []*outbidv1.Check{h.checkNATS(), h.checkStore()}
		for _, worker := range slices.Sorted(maps.Keys(h.held)) {
			if why := h.held[worker]; why != "" {
				h.checks = append(h.checks, &outbidv1.Check{
					Name: "devices", Detail: "worker " + worker + ": " + why,
					Fix: "its trials and this server's trials alternate; to share cores, declare slots: outbid up --devices cpu:2, or OUTBID_DEVICES=cpu:2 for a program that starts it",
				})
			}
		}
		h.at = time.Now()
	}
	return h.checks
}

// within calls f and returns context.DeadlineExceeded if it takes longer than healthTimeout. A client of NATS that
// connects again blocks for longer than its context, and so may a file system.
func within(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), healthTimeout)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

const natsCheck = "nats"

func (h *health) checkNATS() *outbidv1.Check {
	c := &outbidv1.Check{Name: natsCheck}
	began := time.Now()
	if err := within(h.nc.FlushWithContext); err != nil {
		c.Detail = fmt.Sprintf("%s does not answer: %v", h.natsURL, err)
		c.Fix = "restart NATS; the server then continues by itself"
		return c
	}
	c.Ok = true
	c.Detail = fmt.Sprintf("%s answers in %s", h.natsURL, time.Since(began).Round(10*time.Microsecond))
	return c
}

func (h *health) checkStore() *outbidv1.Check {
	c := &outbidv1.Check{Name: "store"}
	if err := within(h.store.Check); err != nil {
		c.Detail = "the store cannot be used: " + err.Error()
		c.Fix = "free space in " + h.store.String() + ", or restore it; trials wait and then continue by themselves"
		return c
	}
	c.Ok, c.Detail = true, h.store.String()+" can be written and read"
	return c
}
