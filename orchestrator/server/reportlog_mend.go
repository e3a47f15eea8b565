package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/history"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// The history is a projection of the ledger. A file that turns out to be damaged while the server runs is rebuilt from
// the ledger, and readers wait for that.

// mend is a file that is being rebuilt.
type mend struct {
	done chan struct{}
	err  error
}

// mends tracks finished and running rebuilds.
type mends struct {
	// source is the ledger; log receives messages.
	source ledger.Ledger
	// reported reports whether a sweep has reports according to the state; it is nil before the state is restored.
	reported func(sweep string) bool
	running  map[string]*mend
	// count is the number of times that each sweep's file was rebuilt, and newest is the time of the last rebuild.
	count  map[string]int
	newest time.Time
	failed map[string]error
	// verified has the number of files that were verified last, of how many, and when.
	verified struct {
		files, of int
		at        time.Time
	}
	stop context.CancelFunc
}

// Read implements control.History.
func (l *reportLog) Read(ctx context.Context, sweep string, trial *int32, f func(trial int32, r *outbidv1.Report) error) error {
	return l.reading(ctx, sweep, f, func(given int64, f func(int32, *outbidv1.Report) error) error {
		return l.History.Read(ctx, sweep, trial, func(n int32, r *outbidv1.Report) error {
			if given > 0 { // passed to f before the damage
				given--
				return nil
			}
			return f(n, r)
		})
	})
}

// ReadAfter implements control.History.
func (l *reportLog) ReadAfter(ctx context.Context, sweep string, n int64, f func(trial int32, r *outbidv1.Report) error) error {
	return l.reading(ctx, sweep, f, func(given int64, f func(int32, *outbidv1.Report) error) error {
		return l.History.ReadAfter(ctx, sweep, n+given, f)
	})
}

// reading reads a sweep's file. If it is damaged, it reads the rest of the reports again after the rebuild.
func (l *reportLog) reading(
	ctx context.Context, sweep string, f func(int32, *outbidv1.Report) error,
	read func(given int64, f func(int32, *outbidv1.Report) error) error,
) error {
	before := l.mended(sweep)
	given := int64(0)
	counted := func(n int32, r *outbidv1.Report) error {
		given++
		return f(n, r)
	}
	err := read(0, counted)
	if err == nil && given == 0 {
		err = l.missing(sweep)
	}
	damage, ok := errors.AsType[*history.DamageError](err)
	if !ok {
		return err
	}
	if l.mended(sweep) == before { // no other reader has rebuilt it in the meantime
		if err := l.await(ctx, l.mend(sweep, damage)); err != nil {
			return err
		}
	}
	return read(given, f)
}

// missing returns a *history.DamageError if a sweep that has reported does not have a file.
func (l *reportLog) missing(sweep string) error {
	l.mu.Lock()
	reported := l.mends.reported
	l.mu.Unlock()
	if reported == nil || !reported(sweep) || l.mended(sweep) > 0 {
		return nil
	}
	if n, err := l.Reports(sweep); n > 0 || err != nil {
		return err
	}
	return &history.DamageError{Sweep: sweep, Reason: "it is missing"}
}

// mended returns how often a sweep's file was rebuilt.
func (l *reportLog) mended(sweep string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mends.count[sweep]
}

// await waits until a file was rebuilt.
func (l *reportLog) await(ctx context.Context, m *mend) error {
	select {
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// mend starts to rebuild a sweep's file, unless that is already running.
func (l *reportLog) mend(sweep string, damage *history.DamageError) *mend {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.mends.running[sweep]; m != nil {
		return m
	}
	m := &mend{done: make(chan struct{})}
	if err := l.ctx.Err(); err != nil || l.mends.source == nil {
		m.err = errors.Join(damage, err)
		close(m.done)
		return m
	}
	if l.mends.failed[sweep] == nil {
		l.log.Warn("a file of the history of reports is damaged; rebuilding it from the ledger", "sweep", sweep, "reason", damage.Reason)
	}
	l.mends.running[sweep] = m
	l.mending.Go(func() {
		defer close(m.done)
		began := time.Now()
		if m.err = l.Mend(l.ctx, l.mends.source, sweep); m.err != nil {
			m.err = fmt.Errorf("%w: %w", damage, m.err)
		}
		l.recordMend(sweep, m.err, time.Since(began))
	})
	return m
}

// recordMend records how the rebuild of a file ended.
func (l *reportLog) recordMend(sweep string, err error, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mends.running, sweep)
	failed := l.mends.failed[sweep] != nil
	switch {
	case err == nil:
		l.log.Info("a file of the history of reports was rebuilt", "sweep", sweep, "took", took.Round(time.Millisecond))
		delete(l.mends.failed, sweep)
		l.mends.count[sweep]++
		l.mends.newest = time.Now()
	case l.ctx.Err() == nil:
		if !failed {
			l.log.Error("a file of the history of reports could not be rebuilt; the next read retries", "sweep", sweep, "err", err)
		}
		l.mends.failed[sweep] = err
	}
}

// mendDamaged starts to rebuild the files that an error reports as damaged, and returns the other errors. whole is false
// if a file is damaged.
func (l *reportLog) mendDamaged(err error) (whole bool, other error) {
	var others []error
	for _, one := range flatten(err) {
		damage, ok := errors.AsType[*history.DamageError](one)
		if !ok {
			others = append(others, one)
			continue
		}
		l.mu.Lock()
		tried := l.mends.failed[damage.Sweep] != nil
		l.mu.Unlock()
		if !tried {
			l.mend(damage.Sweep, damage)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mends.running)+len(l.mends.failed) == 0, errors.Join(others...)
}

// flatten returns the errors that were joined.
func flatten(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // only this error itself is a list
		var all []error
		for _, one := range joined.Unwrap() {
			all = append(all, flatten(one)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// verifyPatience limits how long one caller waits for the verification.
const verifyPatience = 8 * time.Second

// verifyFresh is how long a result is reused, so that callers cannot cause constant reading.
const verifyFresh = time.Second

// verify verifies the history of reports and the ledger, for GetServerInfo.
func (s *Server) verify(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, verifyPatience)
	defer cancel()
	var sweeps []string
	for _, sweep := range s.loop.Sweeps() {
		sweeps = append(sweeps, sweep.GetId())
	}
	s.reports.verify(ctx, sweeps)
	if s.health.natsAnswers() { // otherwise the doctor would wait for its timeout, and not say why
		s.scrub.now(ctx)
	}
}

// verify reads the files of sweeps, and rebuilds damaged ones. It stops when ctx ends; the next call verifies the other
// files.
func (l *reportLog) verify(ctx context.Context, sweeps []string) {
	l.verifying.Lock() // concurrent callers get the same result
	defer l.verifying.Unlock()
	l.mu.Lock()
	fresh := time.Since(l.mends.verified.at) < verifyFresh
	l.mu.Unlock()
	if fresh {
		return
	}
	whole := 0
	for _, sweep := range sweeps {
		err := ctx.Err()
		if err == nil {
			err = errors.Join(l.Verify(ctx, sweep), l.missing(sweep))
		}
		if damage, ok := errors.AsType[*history.DamageError](err); ok {
			err = l.await(ctx, l.mend(sweep, damage))
		}
		if err == nil {
			whole++
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mends.verified.files, l.mends.verified.of, l.mends.verified.at = whole, len(sweeps), time.Now()
}

// check returns the doctor's check of the history.
func (l *reportLog) check() *outbidv1.Check {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &outbidv1.Check{Name: "history", Ok: len(l.mends.failed) == 0, Detail: "no damage was found in the reports since the start"}
	if v := l.mends.verified; !v.at.IsZero() {
		c.Detail = fmt.Sprintf("the reports of %d of %d sweeps are complete", v.files, v.of)
	}
	if n := len(l.mends.count); n > 0 {
		c.Detail += fmt.Sprintf("; damaged files of %d sweeps (%s) were rebuilt from the ledger, the last at %s: check the disk", n,
			firstNames(slices.Sorted(maps.Keys(l.mends.count))), l.mends.newest.Format(time.DateTime))
	}
	if !c.GetOk() {
		sweep := slices.Sorted(maps.Keys(l.mends.failed))[0]
		c.Detail = fmt.Sprintf("the reports of %d sweeps are damaged and could not be rebuilt: %v", len(l.mends.failed), l.mends.failed[sweep])
		c.Fix = "free space on the disk of the data directory, or fix the cause of the error; then read the reports of " + sweep + " again"
	}
	return c
}

// firstNames lists at most three names.
func firstNames(names []string) string {
	if len(names) > 3 {
		return strings.Join(names[:3], ", ") + " and others"
	}
	return strings.Join(names, ", ")
}
