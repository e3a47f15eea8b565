package api

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// WatchSweep implements the service.
func (s *sweepService) WatchSweep(
	req *outbidv1.WatchSweepRequest, stream grpc.ServerStreamingServer[outbidv1.WatchSweepResponse],
) error {
	if req.GetSweep() == "" {
		return errNoSweep()
	}
	w := &watch{control: s.control, key: feedKey{req.GetSweep(), req.GetReports()}, send: stream.SendMsg}
	ctx := stream.Context()
	ended, err := w.catchUp(ctx)
	if err != nil || ended {
		return err
	}
	shared, turn := s.feeds.join(w.key, w.at)
	defer s.feeds.leave(shared)
	for n := 0; ; n++ {
		var u *update
		u, n, err = shared.awaitUpdate(ctx, n, s.feeds.pace()*time.Duration(turn)/(2*wakeGroups))
		if err != nil {
			return err
		}
		if ended, err = w.sendUpdate(ctx, u); err != nil || ended {
			return err
		}
	}
}

// watch is one WatchSweep call.
type watch struct {
	control Control
	key     feedKey
	begun   bool
	at      position
	send    func(any) error
}

// sendUpdate sends an update unless the watcher already has it. If the watcher missed updates that are no longer kept,
// it sends everything that happened since the watcher's position.
func (w *watch) sendUpdate(ctx context.Context, u *update) (ended bool, err error) {
	switch {
	case u.from.version > w.at.version || u.from.reports > w.at.reports:
		return w.catchUp(ctx)
	case u.to.version < w.at.version:
		return u.ended, nil
	case u.from.reports == w.at.reports:
		err = w.sendAll(u.messages)
	case u.to.reports >= w.at.reports:
		var messages []*encoded
		messages, err = chunks(u.sweep, nil, u.reports[w.at.reports-u.from.reports:])
		if err == nil {
			err = w.sendAll(messages)
		}
		if err == nil && u.to.version > w.at.version {
			// The watcher has the update's reports, which were in the messages with its trials.
			w.at.reports = u.to.reports
			return w.catchUp(ctx)
		}
	}
	w.at = position{max(w.at.version, u.to.version), max(w.at.reports, u.to.reports)}
	return u.ended, err
}

func (w *watch) sendAll(messages []*encoded) error {
	for _, m := range messages {
		if err := w.send(m); err != nil {
			return err
		}
	}
	return nil
}

// catchUp sends everything that happened since the watcher's position, and advances it.
func (w *watch) catchUp(ctx context.Context) (ended bool, err error) {
	var rest []*outbidv1.Trial
	if !w.begun {
		if rest, err = w.begin(ctx); err != nil {
			return false, err
		}
	}
	v, err := lookAt(w.control, w.key.sweep, w.at.version)
	if err != nil {
		return false, err
	}
	w.at.version = v.version
	out := &sender{sweep: v.sweep, trials: mergeTrials(rest, v.trials), send: w.send}
	if w.key.reports {
		superseded, err := w.control.Superseded(w.key.sweep)
		if err != nil {
			return false, err
		}
		err = w.control.ReportsAfter(ctx, w.key.sweep, w.at.reports, func(trial int32, r *outbidv1.Report) error {
			w.at.reports++
			return out.report(&outbidv1.TrialReport{Trial: trial, Report: r, Superseded: superseded(trial, r)})
		})
		if err != nil {
			return false, err
		}
	}
	return sweepEnded(v.sweep.GetState()), out.flush()
}

// begin sends the trials page by page, and returns the last page, because Changes would make Control return a large
// sweep at once. Changes in the meantime are sent later.
func (w *watch) begin(ctx context.Context) ([]*outbidv1.Trial, error) {
	var err error
	if _, w.at.version, _, err = w.control.Changes(w.key.sweep, JustVersion); err != nil {
		return nil, err
	}
	w.begun = true
	for from := int32(0); ; {
		page, err := w.control.Trials(w.key.sweep, from, defaultPage)
		if err != nil || len(page) < defaultPage {
			return page, err
		}
		from = page[len(page)-1].GetNumber() + 1
		sweep, err := w.control.Sweep(w.key.sweep)
		if err != nil {
			return nil, err
		}
		messages, err := chunks(sweep, page, nil)
		if err == nil {
			err = w.sendAll(messages)
		}
		if err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// sender collects messages and sends them in pieces, so that a long history is never in memory as a whole.
type sender struct {
	sweep   *outbidv1.Sweep
	trials  []*outbidv1.Trial
	reports []*outbidv1.TrialReport
	size    int
	sent    bool
	send    func(any) error
}

func (s *sender) report(r *outbidv1.TrialReport) error {
	s.reports = append(s.reports, r)
	if s.size += proto.Size(r) + 8; s.size < maxChunk {
		return nil
	}
	return s.flush()
}

// flush sends the collected messages. It also sends the sweep if that was not sent yet.
func (s *sender) flush() error {
	if s.sent && len(s.trials) == 0 && len(s.reports) == 0 {
		return nil
	}
	messages, err := chunks(s.sweep, s.trials, s.reports)
	for _, m := range messages {
		if err == nil {
			err = s.send(m)
		}
	}
	s.trials, s.reports, s.size, s.sent = nil, nil, 0, true
	return err
}

// view is a sweep at a version, with the trials that changed since an earlier one.
type view struct {
	sweep   *outbidv1.Sweep
	trials  []*outbidv1.Trial
	version uint64
	next    <-chan struct{}
}

func lookAt(c Control, id string, since uint64) (view, error) {
	var v view
	var err error
	if v.trials, v.version, v.next, err = c.Changes(id, since); err != nil {
		return v, err
	}
	if v.sweep, err = c.Sweep(id); err != nil || !sweepEnded(v.sweep.GetState()) {
		return v, err
	}
	// The sweep may be newer than the trials, and next does not announce the changes in between.
	var late []*outbidv1.Trial
	late, v.version, v.next, err = c.Changes(id, v.version)
	v.trials = mergeTrials(v.trials, late)
	return v, err
}

// mergeTrials appends newer versions of trials and removes the older ones.
func mergeTrials(old, late []*outbidv1.Trial) []*outbidv1.Trial {
	if len(late) == 0 {
		return old
	}
	newer := make(map[int32]bool, len(late))
	for _, t := range late {
		newer[t.GetNumber()] = true
	}
	merged := make([]*outbidv1.Trial, 0, len(old)+len(late))
	for _, t := range old {
		if !newer[t.GetNumber()] {
			merged = append(merged, t)
		}
	}
	return append(merged, late...)
}

// chunks splits an update into messages of limited size; each contains the sweep.
func chunks(sweep *outbidv1.Sweep, trials []*outbidv1.Trial, reports []*outbidv1.TrialReport) ([]*encoded, error) {
	var messages []*encoded
	for {
		m := &outbidv1.WatchSweepResponse{Sweep: sweep}
		n := fit(trials, maxChunk)
		m.Trials, trials = trials[:n], trials[n:]
		if len(trials) == 0 {
			n = fit(reports, maxChunk)
			m.Reports, reports = reports[:n], reports[n:]
		}
		one, err := encode(m)
		if err != nil {
			return nil, err
		}
		messages = append(messages, one)
		if len(trials) == 0 && len(reports) == 0 {
			return messages, nil
		}
	}
}
