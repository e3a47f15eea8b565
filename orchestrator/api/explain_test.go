package api

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// whatIfFake simulates nothing, and counts how many simulations run at once.
type whatIfFake struct {
	running, most atomic.Int32
	asked         sync.Map
	batches       uint64
	err           error
	// blocked receives when a simulation begins that only its context ends, unless it is nil.
	blocked chan struct{}
}

func (w *whatIfFake) Policies() []string { return []string{"drf", "fifo", "las"} }

func (w *whatIfFake) Batches(context.Context) (uint64, error) { return w.batches, nil }

func (w *whatIfFake) Run(ctx context.Context, req *outbidv1.SimulateLedgerRequest, tell func(*outbidv1.SimulateLedgerResponse) error) error {
	w.most.Store(max(w.most.Load(), w.running.Add(1)))
	defer w.running.Add(-1)
	w.asked.Store(req.GetSweep(), strings.Join(req.GetPolicies(), ","))
	if w.blocked != nil {
		w.blocked <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	for _, run := range []*outbidv1.SimulatedRun{{}, {Policy: "themis"}, {Policy: "themis", Weight: 2}} {
		for i, id := range []string{"digits-1", "words-1"} {
			run.Sweeps = append(run.Sweeps, &outbidv1.SimulatedSweep{Sweep: id, Seconds: new(float64(5 + i))})
		}
		if err := tell(&outbidv1.SimulateLedgerResponse{Piece: &outbidv1.SimulateLedgerResponse_Run{Run: run}}); err != nil {
			return err
		}
	}
	return w.err
}

func explaining(t *testing.T) (*testServer, *whatIfFake) {
	t.Helper()
	w := &whatIfFake{}
	h := serve(t, func(c *Config) { c.Tokens, c.WhatIf = testTokens(t), w })
	for _, id := range []string{"digits-1", "digits-2"} {
		h.control.add(id, "vision", 1)
		h.control.change(id, func(s *fakeSweep) { s.view.Counts.Running = 1 })
	}
	return h, w
}

func TestExplainSweep(t *testing.T) {
	t.Parallel()
	h, w := explaining(t)
	got, err := h.dial(t, token("eve")).ExplainSweep(t.Context(), &outbidv1.ExplainSweepRequest{Sweep: "digits-1"})
	if err != nil || got.GetCause() != "training" || len(got.GetOutcomes()) > 0 {
		t.Errorf("without a simulation: %v, %v", got, err)
	}
	got, err = h.dial(t, token("eve")).ExplainSweep(t.Context(), &outbidv1.ExplainSweepRequest{
		Sweep: "digits-1", Trial: new(int32), Simulate: true, Policies: []string{"fifo"},
	})
	if err != nil || len(got.GetOutcomes()) != 2 || got.GetOutcomes()[1].GetWeight() != 2 {
		t.Errorf("with one: %v, %v", got, err)
	}
	if names, _ := w.asked.Load("digits-1"); names != "fifo" {
		t.Errorf("it simulated %v", names)
	}
	w.batches = maxExplainedBatches + 1
	got, err = h.dial(t, token("eve")).ExplainSweep(t.Context(), &outbidv1.ExplainSweepRequest{Sweep: "digits-1", Simulate: true})
	if err != nil || len(got.GetOutcomes()) > 0 {
		t.Errorf("of a long ledger: %v, %v", got, err)
	}
}

func TestExplainSweepRefuses(t *testing.T) {
	t.Parallel()
	h, _ := explaining(t)
	for name, tc := range map[string]struct {
		who  string
		req  *outbidv1.ExplainSweepRequest
		code codes.Code
		text string
	}{
		"another tenant": {"bob", &outbidv1.ExplainSweepRequest{Sweep: "digits-1"}, codes.NotFound, `there is no sweep "digits-1"`},
		"no sweep":       {"ann", &outbidv1.ExplainSweepRequest{}, codes.InvalidArgument, "sweep"},
		"no such trial":  {"ann", &outbidv1.ExplainSweepRequest{Sweep: "digits-1", Trial: new(int32(9))}, codes.NotFound, ""},
		"a policy":       {"ann", &outbidv1.ExplainSweepRequest{Sweep: "digits-1", Policies: []string{"fairest"}}, codes.InvalidArgument, `policies: "fairest": want names from drf, fifo, las`},
		"many policies":  {"ann", &outbidv1.ExplainSweepRequest{Sweep: "digits-1", Policies: make([]string, 5)}, codes.InvalidArgument, "policies: has 5 names; at most 4"},
	} {
		_, err := h.dial(t, token(tc.who)).ExplainSweep(t.Context(), tc.req)
		if status.Code(err) != tc.code || !strings.Contains(status.Convert(err).Message(), tc.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// However many callers ask, one simulation runs at a time. One that fails costs only its sentence.
func TestOneSimulationAtATime(t *testing.T) {
	t.Parallel()
	h, w := explaining(t)
	w.err = errors.New("the ledger is too long")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := h.dial(t, token("ann")).ExplainSweep(t.Context(), &outbidv1.ExplainSweepRequest{Sweep: "digits-2", Simulate: true}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if w.most.Load() != 1 {
		t.Errorf("%d simulations ran at once", w.most.Load())
	}
}
