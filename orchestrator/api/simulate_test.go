package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// simulating returns a server on which tenants vision and speech have a sweep each.
func simulating(t *testing.T) (*testServer, *whatIfFake) {
	t.Helper()
	w := &whatIfFake{}
	h := serve(t, func(c *Config) { c.Tokens, c.WhatIf = testTokens(t), w })
	h.control.add("digits-1", "vision", 1)
	h.control.add("words-1", "speech", 1)
	return h, w
}

// runs reads a simulation to its end, and returns the sweeps of each run.
func runs(stream grpc.ServerStreamingClient[outbidv1.SimulateLedgerResponse], err error) (all []string, _ error) {
	for err == nil {
		var got *outbidv1.SimulateLedgerResponse
		if got, err = stream.Recv(); err == nil && got.GetRun() != nil {
			text := got.GetRun().GetPolicy()
			for _, s := range got.GetRun().GetSweeps() {
				text += fmt.Sprintf(" %q %v", s.GetSweep(), s.GetSeconds())
			}
			all = append(all, text)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, err
}

// Callers see how every sweep fared, and only the names of sweeps that they own.
func TestSimulateLedger(t *testing.T) {
	t.Parallel()
	h, w := simulating(t)
	for who, want := range map[string]string{
		"eve":  ` "digits-1" 5 "" 6;themis "digits-1" 5 "" 6;themis "digits-1" 5 "" 6`,
		"bob":  ` "" 5 "words-1" 6;themis "" 5 "words-1" 6;themis "" 5 "words-1" 6`,
		"root": ` "digits-1" 5 "words-1" 6;themis "digits-1" 5 "words-1" 6;themis "digits-1" 5 "words-1" 6`,
	} {
		got, err := runs(h.dial(t, token(who)).SimulateLedger(t.Context(), &outbidv1.SimulateLedgerRequest{Policies: []string{"las", "drf"}}))
		if err != nil || strings.Join(got, ";") != want {
			t.Errorf("%s: %s, %v", who, strings.Join(got, ";"), err)
		}
	}
	if names, _ := w.asked.Load(""); names != "las,drf" {
		t.Errorf("it simulated %v", names)
	}
	info, err := h.dial(t, token("eve")).GetServerInfo(t.Context(), &outbidv1.GetServerInfoRequest{})
	if err != nil || strings.Join(info.GetSimulatedPolicies(), ",") != "drf,fifo,las" {
		t.Errorf("the policies are %v, %v", info.GetSimulatedPolicies(), err)
	}
	w.err = fmt.Errorf("%w: since: no sweep was submitted from then", state.ErrInvalid)
	_, err = runs(h.dial(t, token("eve")).SimulateLedger(t.Context(), &outbidv1.SimulateLedgerRequest{Policies: []string{"las"}}))
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "since: no sweep was submitted") {
		t.Errorf("a bad period: %v", err)
	}
}

func TestSimulateLedgerRefuses(t *testing.T) {
	t.Parallel()
	h, _ := simulating(t)
	at := func(s int64) *timestamppb.Timestamp { return timestamppb.New(time.Unix(s, 0)) }
	for name, tc := range map[string]struct {
		req  *outbidv1.SimulateLedgerRequest
		code codes.Code
		text string
	}{
		"nothing":         {&outbidv1.SimulateLedgerRequest{}, codes.InvalidArgument, "policies: is missing; give names from drf, fifo, las, or a sweep and its weight"},
		"a policy":        {&outbidv1.SimulateLedgerRequest{Policies: []string{"fairest"}}, codes.InvalidArgument, `policies: "fairest": want names from drf, fifo, las`},
		"many policies":   {&outbidv1.SimulateLedgerRequest{Policies: make([]string, 5)}, codes.InvalidArgument, "policies: has 5 names; at most 4"},
		"a policy twice":  {&outbidv1.SimulateLedgerRequest{Policies: []string{"las", "las"}}, codes.InvalidArgument, `policies: has "las" twice`},
		"no weight":       {&outbidv1.SimulateLedgerRequest{Sweep: "digits-1"}, codes.InvalidArgument, "weight: must be a number above 0, got 0"},
		"no sweep":        {&outbidv1.SimulateLedgerRequest{Policies: []string{"las"}, Weight: 2}, codes.InvalidArgument, "sweep: is missing"},
		"another's sweep": {&outbidv1.SimulateLedgerRequest{Sweep: "words-1", Weight: 2}, codes.NotFound, `there is no sweep "words-1"`},
		"an empty period": {&outbidv1.SimulateLedgerRequest{Policies: []string{"las"}, Since: at(9), Until: at(9)}, codes.InvalidArgument, "until: must be after since"},
		"no time":         {&outbidv1.SimulateLedgerRequest{Policies: []string{"las"}, Until: &timestamppb.Timestamp{Nanos: -1}}, codes.InvalidArgument, "until: is not a valid time"},
	} {
		_, err := runs(h.dial(t, token("eve")).SimulateLedger(t.Context(), tc.req))
		if status.Code(err) != tc.code || !strings.Contains(status.Convert(err).Message(), tc.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	without := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	if _, err := runs(without.dial(t, token("eve")).SimulateLedger(t.Context(), &outbidv1.SimulateLedgerRequest{})); status.Code(err) != codes.Unimplemented {
		t.Errorf("without simulations: %v", err)
	}
}

// One simulation runs at a time, and a tenant has one that runs or waits. Closing the stream ends it, so that the next
// begins. Explanations do not wait for it.
func TestSimulationsTakeTurns(t *testing.T) {
	t.Parallel()
	h, w := simulating(t)
	h.control.change("digits-1", func(s *fakeSweep) { s.view.Counts.Running = 1 })
	w.blocked = make(chan struct{})
	req := &outbidv1.SimulateLedgerRequest{Policies: []string{"las"}}
	begin := func(who string) (cancel func(), stream grpc.ServerStreamingClient[outbidv1.SimulateLedgerResponse]) {
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := h.dial(t, token(who)).SimulateLedger(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := stream.Recv(); err != nil || !got.GetProgress().GetWaiting() {
			t.Fatalf("%s does not wait: %v, %v", who, got, err)
		}
		return cancel, stream
	}
	stop, _ := begin("ann")
	<-w.blocked
	leave, second := begin("bob")
	if _, err := runs(h.dial(t, token("eve")).SimulateLedger(t.Context(), req)); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "tenant vision has a simulation already") {
		t.Errorf("a second one of the same tenant: %v", err)
	}
	ctx, leaveExplanation := context.WithCancel(t.Context())
	explained := make(chan error, 1)
	go func() {
		_, err := h.dial(t, token("root")).ExplainSweep(ctx, &outbidv1.ExplainSweepRequest{Sweep: "digits-1", Simulate: true})
		explained <- err
	}()
	<-w.blocked // its simulation runs too
	leaveExplanation()
	if err := <-explained; status.Code(err) != codes.Canceled {
		t.Errorf("a cancelled explanation: %v", err)
	}
	stop()
	if got, err := second.Recv(); err != nil || got.GetProgress() == nil || got.GetProgress().GetWaiting() {
		t.Errorf("the second one does not begin: %v, %v", got, err)
	}
	<-w.blocked
	leave()
}
