package api

import (
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// allReports reads a watch to its end, and fails unless each report arrived once and in order.
func allReports(t *testing.T, stream grpc.ServerStreamingClient[outbidv1.WatchSweepResponse], want int64) {
	t.Helper()
	var seen int64
	var last *outbidv1.WatchSweepResponse
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Error(err)
			return
		}
		last = m
		for _, r := range m.GetReports() {
			if seen++; r.GetReport().GetStep() != seen {
				t.Errorf("report %d is of step %d", seen, r.GetReport().GetStep())
			}
		}
	}
	if seen != want || last.GetSweep().GetState() != outbidv1.SweepState_SWEEP_STATE_DONE {
		t.Errorf("%d reports, want %d; the last update says %s", seen, want, last.GetSweep().GetState())
	}
}

func TestAThousandWatchersCostOneLookPerChange(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 3)
	h.control.report(t, "digits-1", 0, 1)
	const watchers, changes = 1000, 5
	client := h.dial(t, "")
	var begun, done sync.WaitGroup
	for range watchers {
		stream, err := client.WatchSweep(t.Context(), &outbidv1.WatchSweepRequest{Sweep: "digits-1", Reports: true})
		if err != nil {
			t.Fatal(err)
		}
		begun.Add(1)
		done.Go(func() {
			first, err := stream.Recv()
			begun.Done()
			if err != nil || len(first.GetTrials()) != 3 || len(first.GetReports()) == 0 {
				t.Errorf("the first update has %d trials and %d reports: %v", len(first.GetTrials()), len(first.GetReports()), err)
				return
			}
			for _, r := range first.GetReports()[1:] {
				t.Errorf("the first update has report %d already", r.GetReport().GetStep())
			}
			allReports(t, prefixed{stream, first.GetReports()}.rest(), changes+1)
		})
	}
	begun.Wait()
	h.control.mu.Lock()
	before := h.control.looks
	h.control.mu.Unlock()
	for i := range changes {
		h.control.report(t, "digits-1", 0, int64(i+2))
		h.control.change("digits-1", func(s *fakeSweep) { s.trials[0].Step++ }, 0)
	}
	h.control.end("digits-1")
	done.Wait()
	// Watchers that joined after a change call Changes themselves.
	if looks := h.control.looks - before; looks > watchers/2 {
		t.Errorf("%d calls of Changes for %d changes", looks, changes)
	}
}

// prefixed is a stream whose first message has been read already.
type prefixed struct {
	grpc.ServerStreamingClient[outbidv1.WatchSweepResponse]
	first []*outbidv1.TrialReport
}

func (p prefixed) rest() grpc.ServerStreamingClient[outbidv1.WatchSweepResponse] { return &p }

// Recv returns the reports of the first message again.
func (p *prefixed) Recv() (*outbidv1.WatchSweepResponse, error) {
	if p.first != nil {
		m := &outbidv1.WatchSweepResponse{Reports: p.first}
		p.first = nil
		return m, nil
	}
	return p.ServerStreamingClient.Recv()
}

func TestASlowWatcherIsToldEverythingOnce(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 1)
	request := &outbidv1.WatchSweepRequest{Sweep: "digits-1", Reports: true}
	slow, err := h.dial(t, "").WatchSweep(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	quick, err := h.dial(t, "").WatchSweep(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	// These are more updates than a feed keeps. Each is too large for the buffers to a client that does not read.
	const changes = 3 * keptUpdates
	for step := int64(1); step <= changes; {
		m, err := quick.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if n := len(m.GetReports()); n > 0 {
			if got := m.GetReports()[n-1].GetReport().GetStep(); got != step-1 {
				t.Fatalf("step %d was sent, want %d", got, step-1)
			}
		} else if step > 1 {
			continue
		}
		h.control.report(t, "digits-1", 0, step)
		h.control.change("digits-1", func(s *fakeSweep) { s.trials[0].ConfigJson = strings.Repeat("x", 200_000) }, 0)
		step++
	}
	h.control.end("digits-1")
	allReports(t, slow, changes)
}
