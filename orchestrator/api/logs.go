package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// lastLines is how long a log waits for late lines after its sweep or trial has ended. Workers send lines in batches,
// separately from reports.
const lastLines = 500 * time.Millisecond

// errEnded ends the reading of a followed log.
var errEnded = errors.New("the followed sweep or trial has ended")

// logService has the calls about the output of trials.
type logService struct {
	lookup
	logs Logs
}

// StreamLogs implements the service.
func (s *logService) StreamLogs(
	req *outbidv1.StreamLogsRequest, stream grpc.ServerStreamingServer[outbidv1.StreamLogsResponse],
) error {
	if req.GetTail() < 0 {
		return fieldError("tail", "%d is below 0; leave it out for all lines", req.GetTail())
	}
	if req.GetContains() != "" && req.GetFollow() {
		return fieldError("contains", "cannot be combined with follow")
	}
	sweep, err := s.sweep(req.GetSweep())
	if err != nil {
		return err
	}
	tenant := tenantOf(sweep.GetSpec())
	if req.Trial != nil {
		if _, err := s.trial(req.GetSweep(), req.GetTrial()); err != nil {
			return err
		}
	}
	ctx := stream.Context()
	if !req.GetFollow() {
		if err := s.awaitLastLines(ctx, req.GetSweep(), req.Trial); err != nil {
			return err
		}
		return s.pastLogs(ctx, tenant, req, stream.Send)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.awaitEnd(ctx, req.GetSweep(), req.Trial); err != nil {
			cancel(err)
		}
	}()
	err = s.followLogs(ctx, tenant, req, stream.Send)
	cancel(nil)
	<-done
	if errors.Is(context.Cause(ctx), errEnded) {
		return nil
	}
	return err
}

// pastLogs sends the existing lines.
func (s *logService) pastLogs(
	ctx context.Context, tenant string, req *outbidv1.StreamLogsRequest, send func(*outbidv1.StreamLogsResponse) error,
) error {
	if req.GetContains() != "" {
		found := &foundLines{text: strings.ToLower(req.GetContains()), most: int(req.GetTail()), send: send}
		if err := s.logs.Read(ctx, tenant, req.GetSweep(), req.Trial, 0, false, attempts{}.eachLine(found.take)); err != nil {
			return err
		}
		return found.flush()
	}
	if req.GetTail() == 0 {
		return s.logs.Read(ctx, tenant, req.GetSweep(), req.Trial, 0, false, attempts{}.eachLine(send))
	}
	_, err := s.tailLogs(ctx, tenant, req, attempts{}, send)
	return err
}

// tailLogs sends the last lines, and returns the position after them.
func (s *logService) tailLogs(
	ctx context.Context, tenant string, req *outbidv1.StreamLogsRequest, known attempts,
	send func(*outbidv1.StreamLogsResponse) error,
) (next uint64, err error) {
	chunks, next, err := s.logs.Tail(ctx, tenant, req.GetSweep(), req.Trial, int(req.GetTail()))
	if err != nil {
		return 0, err
	}
	var lines []*outbidv1.StreamLogsResponse
	each := known.eachLine(func(line *outbidv1.StreamLogsResponse) error {
		lines = append(lines, line)
		return nil
	})
	for _, c := range chunks {
		if err := each(c); err != nil {
			return 0, err
		}
	}
	for _, line := range lines[max(0, len(lines)-int(req.GetTail())):] {
		if err := send(line); err != nil {
			return 0, err
		}
	}
	return next, nil
}

// followLogs sends the existing lines, then new ones until ctx ends.
func (s *logService) followLogs(
	ctx context.Context, tenant string, req *outbidv1.StreamLogsRequest, send func(*outbidv1.StreamLogsResponse) error,
) error {
	from, known := uint64(0), attempts{}
	if req.GetTail() > 0 {
		var err error
		if from, err = s.tailLogs(ctx, tenant, req, known, send); err != nil {
			return err
		}
	}
	return s.logs.Read(ctx, tenant, req.GetSweep(), req.Trial, from, true, known.eachLine(send))
}

// awaitEnd returns errEnded once the sweep or the trial has ended and its last lines have had time to arrive.
func (s *logService) awaitEnd(ctx context.Context, sweep string, trial *int32) error {
	for {
		_, _, next, err := s.control.Changes(sweep, JustVersion)
		if err != nil {
			return err
		}
		ended, err := s.hasEnded(sweep, trial)
		if err != nil {
			return err
		}
		if ended {
			break
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := sleep(ctx, lastLines); err != nil {
		return err
	}
	return errEnded
}

// awaitLastLines waits for the last lines of a sweep or trial that has just ended, because they usually tell why it failed.
func (s *logService) awaitLastLines(ctx context.Context, sweep string, trial *int32) error {
	var ended *timestamppb.Timestamp
	if trial != nil {
		t, err := s.control.Trial(sweep, *trial)
		if err != nil {
			return err
		}
		ended = t.GetEnded()
	} else {
		v, err := s.control.Sweep(sweep)
		if err != nil {
			return err
		}
		ended = v.GetEnded()
	}
	if ended == nil {
		return nil
	}
	return sleep(ctx, min(lastLines, lastLines-time.Since(ended.AsTime())))
}

// sleep waits for d, or returns the error of ctx if it ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *logService) hasEnded(sweep string, trial *int32) (bool, error) {
	if trial != nil {
		t, err := s.control.Trial(sweep, *trial)
		return trialEnded(t.GetState()), err
	}
	v, err := s.control.Sweep(sweep)
	return sweepEnded(v.GetState()), err
}

// attempts maps each trial to the newest lease whose output was sent. A later lease is another attempt.
type attempts map[int32]uint64

// MarkStream is the stream name of the lines that separate the attempts of a trial. No trial printed them.
const MarkStream = "outbid"

// mark returns the line that separates a later attempt from the output sent before it, or nil if the chunk does not
// start a later attempt.
func (a attempts) mark(c *outbidv1.LogChunk, at *timestamppb.Timestamp) *outbidv1.StreamLogsResponse {
	trial, lease := c.GetFork().GetTrial(), c.GetFork().GetLeaseId()
	before, known := a[trial]
	if known && lease <= before {
		return nil
	}
	a[trial] = lease
	if !known {
		return nil
	}
	return &outbidv1.StreamLogsResponse{
		Trial: trial, Node: c.GetNode(), Stream: MarkStream, Time: at,
		Line: fmt.Sprintf("--- started on %s at %s ---", c.GetNode(), at.AsTime().Format(time.RFC3339)),
	}
}

// eachLine returns a function that calls f with every line of a chunk, and with a mark before the output of a later
// attempt.
func (a attempts) eachLine(f func(*outbidv1.StreamLogsResponse) error) func(*outbidv1.LogChunk) error {
	return func(c *outbidv1.LogChunk) error {
		at := timestamppb.New(time.UnixMilli(c.GetTimeUnixMs()))
		if mark := a.mark(c, at); mark != nil {
			if err := f(mark); err != nil {
				return err
			}
		}
		for line := range strings.Lines(string(c.GetData())) {
			line = sanitize.Valid(strings.TrimRight(line, "\r\n"))
			err := f(&outbidv1.StreamLogsResponse{
				Trial: c.GetFork().GetTrial(), Node: c.GetNode(), Stream: c.GetStream(), Time: at, Line: line,
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
}
