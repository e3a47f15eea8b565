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

// The history is a projection of the ledger: a file that turns out to be damaged while the server runs is made again from there,
// and who reads it waits for that.

// mend is a file being made again.
type mend struct {
	done chan struct{}
	err  error
}

// mends are what was made again, and what is.
type mends struct {
	// source is the ledger; log gets what happens.
	source ledger.Ledger
	// reported reports whether a sweep has reports, as the state says; nil as long as there is none.
	reported func(sweep string) bool
	running  map[string]*mend
	// count is how often each sweep's file was made again, and newest is the last one.
	count  map[string]int
	newest time.Time
	failed map[string]error
	// verified are the files that were verified last, of how many, and when.
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
			if given > 0 { // it was given before the damage
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

// reading reads a sweep's file, and once more after the reports that were given if it was damaged.
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
	if l.mended(sweep) == before { // nobody else has made it again meanwhile
		if err := l.await(ctx, l.mend(sweep, damage)); err != nil {
			return err
		}
	}
	return read(given, f)
}

// missing returns a *history.DamageError if a sweep that has reported has no file.
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
	return &history.DamageError{Sweep: sweep, Reason: "it is gone"}
}

// mended is how often a sweep's file was made again.
func (l *reportLog) mended(sweep string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mends.count[sweep]
}

// await waits until a file was made again.
func (l *reportLog) await(ctx context.Context, m *mend) error {
	select {
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// mend begins to make a sweep's file again, unless that is under way.
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
		l.log.Warn("a file of the history of reports is damaged, and is made again from the ledger", "sweep", sweep, "reason", damage.Reason)
	}
	l.mends.running[sweep] = m
	l.mending.Go(func() {
		defer close(m.done)
		began := time.Now()
		if m.err = l.Mend(l.ctx, l.mends.source, sweep); m.err != nil {
			m.err = fmt.Errorf("%w: %w", damage, m.err)
		}
		l.note(sweep, m.err, time.Since(began))
	})
	return m
}

// note keeps how the making of a file ended.
func (l *reportLog) note(sweep string, err error, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mends.running, sweep)
	failed := l.mends.failed[sweep] != nil
	switch {
	case err == nil:
		l.log.Info("a file of the history of reports was made again", "sweep", sweep, "took", took.Round(time.Millisecond))
		delete(l.mends.failed, sweep)
		l.mends.count[sweep]++
		l.mends.newest = time.Now()
	case l.ctx.Err() == nil:
		if !failed {
			l.log.Error("a file of the history of reports could not be made again; the next read of it tries once more", "sweep", sweep, "err", err)
		}
		l.mends.failed[sweep] = err
	}
}

// noteDamage has the files made again that an error says are damaged, and returns the other errors; whole is false if a file
// is damaged.
func (l *reportLog) noteDamage(err error) (whole bool, other error) {
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

// flatten lists the errors that were joined.
func flatten(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // only this very error is a list
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

// verifyPatience bounds how long one caller waits for the files to be verified.
const verifyPatience = 8 * time.Second

// verifyFresh is how long what was found holds, so that callers cannot have the files read over and over.
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
	s.scrub.now(ctx)
}

// verify reads the files of sweeps, and has those that are damaged made again. It ends with ctx: files that it could not verify
// until then are left to the next time.
func (l *reportLog) verify(ctx context.Context, sweeps []string) {
	l.verifying.Lock() // whoever comes meanwhile gets the same answer
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

// check is the doctor's line about the history.
func (l *reportLog) check() *outbidv1.Check {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &outbidv1.Check{Name: "history", Ok: len(l.mends.failed) == 0, Detail: "no damage was found in the reports since the start"}
	if v := l.mends.verified; !v.at.IsZero() {
		c.Detail = fmt.Sprintf("the reports of %d of %d sweeps are whole", v.files, v.of)
	}
	if n := len(l.mends.count); n > 0 {
		c.Detail += fmt.Sprintf("; damaged files of %d sweeps (%s) were made again from the ledger, the last at %s: look at the disk", n,
			few(slices.Sorted(maps.Keys(l.mends.count))), l.mends.newest.Format(time.DateTime))
	}
	if !c.GetOk() {
		sweep := slices.Sorted(maps.Keys(l.mends.failed))[0]
		c.Detail = fmt.Sprintf("the reports of %d sweeps are damaged and could not be made again: %v", len(l.mends.failed), l.mends.failed[sweep])
		c.Fix = "make room on the disk of the data directory, or mend what the error names; then read the reports of " + sweep + " again"
	}
	return c
}

// few names some of many.
func few(names []string) string {
	if len(names) > 3 {
		return strings.Join(names[:3], ", ") + " and others"
	}
	return strings.Join(names, ", ")
}
