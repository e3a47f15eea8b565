package api

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// watchEvery is the shortest time between two updates of WatchSweep.
const watchEvery = 100 * time.Millisecond

// WatchSweep implements the service.
func (s *service) WatchSweep(
	req *outbidv1.WatchSweepRequest, stream grpc.ServerStreamingServer[outbidv1.WatchSweepResponse],
) error {
	if req.GetSweep() == "" {
		return errNoSweep()
	}
	w := &watch{control: s.control, id: req.GetSweep(), send: stream.Send}
	if req.GetReports() {
		w.reports = &reportTail{control: s.control, sweep: req.GetSweep()}
	}
	pace := time.NewTicker(watchEvery)
	defer pace.Stop()
	for {
		ended, next, err := w.update(stream.Context())
		if err != nil || ended {
			return err
		}
		select {
		case <-next:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
		select {
		case <-pace.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// watch is one WatchSweep.
type watch struct {
	control Control
	id      string
	begun   bool
	version uint64
	reports *reportTail
	send    func(*outbidv1.WatchSweepResponse) error
}

// update sends what changed since the one before. It reports whether the sweep has ended and all of it was sent.
func (w *watch) update(ctx context.Context) (ended bool, next <-chan struct{}, err error) {
	var rest, trials []*outbidv1.Trial
	if !w.begun {
		if rest, err = w.begin(ctx); err != nil {
			return false, nil, err
		}
	}
	trials, w.version, next, err = w.control.Changes(w.id, w.version)
	if err != nil {
		return false, nil, err
	}
	trials = mergeTrials(rest, trials)
	sweep, err := w.control.Sweep(w.id)
	if err != nil {
		return false, nil, err
	}
	if ended = sweepEnded(sweep.GetState()); ended {
		// The sweep is newer than the trials; what changed between is not announced by next any more.
		var late []*outbidv1.Trial
		if late, w.version, next, err = w.control.Changes(w.id, w.version); err != nil {
			return false, nil, err
		}
		trials = mergeTrials(trials, late)
	}
	var reports []*outbidv1.TrialReport
	if w.reports != nil {
		if reports, err = w.reports.next(ctx); err != nil {
			return false, nil, err
		}
	}
	return ended, next, w.sendChunks(sweep, trials, reports)
}

// begin sends the trials there are, page by page, and returns the last page: Changes would make Control show all of a
// large sweep at once. What changes meanwhile comes with the update that follows.
func (w *watch) begin(ctx context.Context) ([]*outbidv1.Trial, error) {
	var err error
	if _, w.version, _, err = w.control.Changes(w.id, JustVersion); err != nil {
		return nil, err
	}
	w.begun = true
	for from := int32(0); ; {
		page, err := w.control.Trials(w.id, from, defaultPage)
		if err != nil || len(page) < defaultPage {
			return page, err
		}
		from = page[len(page)-1].GetNumber() + 1
		sweep, err := w.control.Sweep(w.id)
		if err != nil {
			return nil, err
		}
		if err := w.sendChunks(sweep, page, nil); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// mergeTrials puts newer versions of trials after the others.
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

// sendChunks sends one update in as many messages as its size asks for; each holds the sweep.
func (w *watch) sendChunks(
	sweep *outbidv1.Sweep, trials []*outbidv1.Trial, reports []*outbidv1.TrialReport,
) error {
	for {
		m := &outbidv1.WatchSweepResponse{Sweep: sweep}
		n := fit(trials, maxChunk)
		m.Trials, trials = trials[:n], trials[n:]
		if len(trials) == 0 {
			n = fit(reports, maxChunk)
			m.Reports, reports = reports[:n], reports[n:]
		}
		if err := w.send(m); err != nil {
			return err
		}
		if len(trials) == 0 && len(reports) == 0 {
			return nil
		}
	}
}

// reportTail reads a sweep's reports off the ledger, each once: the state holds only the newest of each trial.
type reportTail struct {
	control Control
	sweep   string
	seq     uint64
}

// next returns the reports in the ledger that it has not returned yet.
func (r *reportTail) next(ctx context.Context) ([]*outbidv1.TrialReport, error) {
	var found []*outbidv1.TrialReport
	err := r.control.Ledger(ctx, r.seq+1, func(b *outbidv1.Batch) error {
		events := new(outbidv1.Events)
		if err := proto.Unmarshal(b.GetEvents(), events); err != nil {
			return err
		}
		for _, e := range events.GetEvents() {
			if t := e.GetTrialReported(); t != nil && t.GetSweep() == r.sweep {
				found = append(found, &outbidv1.TrialReport{Trial: t.GetTrial(), Report: t.GetReport()})
			}
		}
		r.seq = b.GetSeq()
		return nil
	})
	return found, err
}
