package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/checksum"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Pauses between attempts to reach the object store.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 15 * time.Second
)

// backoff returns growing pauses.
type backoff struct{ next time.Duration }

func (b *backoff) pause() time.Duration {
	pause := max(b.next, firstRetry)
	b.next = min(2*pause, lastRetry)
	return pause
}

// uploader stores a fork's checkpoints one at a time while training continues. Only the newest checkpoint waits; one
// that is replaced by a newer one is never stored.
type uploader struct {
	fork   *fork
	ctx    context.Context //nolint:containedctx // the uploader's lifetime
	cancel context.CancelFunc
	owner  sync.WaitGroup
	newer  chan struct{}

	// troubled is since when nothing could be stored; zero if the last attempt succeeded. It is owned by run, which
	// never runs twice at once.
	troubled time.Time

	mu      sync.Mutex
	running bool
	closed  bool
	waiting *outbidv1.ProcessSaved
	stored  string // the key of the last file
}

// storedFile is a file that is in the store.
type storedFile struct {
	key  string
	size int64
	sums checksum.Sums
	// manifest is the sum of a manifest's shards, or "", and shardBytes their size in all.
	manifest   string
	shardBytes int64
}

func newUploader(f *fork) *uploader {
	u := &uploader{fork: f, newer: make(chan struct{}, 1)}
	u.ctx, u.cancel = context.WithCancel(context.Background())
	return u
}

// offer takes a checkpoint file over from the training code.
func (u *uploader) offer(s *outbidv1.ProcessSaved) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.closed:
		u.drop(s, "the trial has ended")
	case u.saveKey(s) == u.stored && s.GetShard() == nil:
		u.drop(s, "") // already stored under the same key
	default:
		if u.waiting != nil {
			u.drop(u.waiting, "overtaken by a later checkpoint")
		}
		u.waiting = s
		poke(u.newer)
		if !u.running {
			u.running = true
			u.owner.Go(u.run)
		}
	}
}

// drop removes a file that is not stored, and tells the training code.
func (u *uploader) drop(s *outbidv1.ProcessSaved, failure string) {
	if err := os.Remove(s.GetPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		u.fork.telemetry.logger().Warn("a checkpoint file could not be removed", "error", err)
	}
	u.answer(s, failure)
}

func (u *uploader) answer(s *outbidv1.ProcessSaved, failure string) {
	u.fork.link.answerSave(s, failure)
}

// idle reports whether everything that was offered is in the store.
func (u *uploader) idle() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.running
}

// stop drops checkpoints that are not stored yet.
func (u *uploader) stop() {
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	u.cancel()
}

// close stops the uploader and waits for it.
func (u *uploader) close() {
	u.stop()
	u.owner.Wait()
}

func (u *uploader) run() {
	for {
		u.mu.Lock()
		s := u.waiting
		u.waiting = nil
		if s == nil {
			u.running = false
			u.mu.Unlock()
			u.fork.activity.touch() // the process may have waited for the upload
			poke(u.fork.wake)
			return
		}
		u.mu.Unlock()
		u.store(s)
	}
}

// store stores one checkpoint, or drops it for a newer one.
func (u *uploader) store(s *outbidv1.ProcessSaved) {
	f := u.fork
	if !strings.HasPrefix(filepath.Clean(s.GetPath()), f.files.dir+string(filepath.Separator)) {
		u.answer(s, fmt.Sprintf("%s is not in the trial's scratch directory", s.GetPath()))
		return
	}
	began := time.Now()
	var err error
	defer func() { f.telemetry.trace(saveName(s), began, s.GetStep(), err) }()
	var retry backoff
	for {
		var stored *storedFile
		stored, err = u.put(s)
		if err == nil {
			if !u.troubled.IsZero() {
				f.messages.note("info", fmt.Sprintf("the checkpoint of step %d of %s is stored after %s", s.GetStep(), trialName(f.ref),
					time.Since(u.troubled).Round(time.Second)))
				u.troubled = time.Time{}
			}
			u.mu.Lock()
			u.stored = stored.key
			u.mu.Unlock()
			u.announce(s, stored)
			return
		}
		if u.ctx.Err() != nil {
			u.drop(s, "the trial has ended")
			return
		}
		if errors.Is(err, os.ErrNotExist) { // the file is gone: trying again does not help
			u.answer(s, oneLine(err))
			return
		}
		if bad := (*manifestError)(nil); errors.As(err, &bad) { // the process would write the same again
			u.drop(s, oneLine(err))
			f.reject(fail(outbidv1.FailureKind_FAILURE_KIND_ERROR, "the checkpoint of step %d: %s", s.GetStep(), oneLine(err)))
			return
		}
		if errors.Is(err, objects.ErrRefused) {
			u.drop(s, oneLine(err))
			return
		}
		if u.troubled.IsZero() { // one note for the whole outage, however many checkpoints it delays
			u.troubled = time.Now()
			f.messages.note("warning", fmt.Sprintf("the checkpoint of step %d of %s waits: %s", s.GetStep(), trialName(f.ref),
				storeTrouble(f.store(), err)))
		}
		if !u.waitRetry(retry.pause()) {
			u.drop(s, "overtaken by a later checkpoint")
			return
		}
	}
}

// waitRetry waits before the next attempt. It returns false if there is a newer checkpoint to store instead.
func (u *uploader) waitRetry(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true
		case <-u.ctx.Done():
			return true // the next attempt will fail
		case <-u.newer:
			u.mu.Lock()
			overtaken := u.waiting != nil
			u.mu.Unlock()
			if overtaken {
				return false
			}
		}
	}
}

// storeTrouble describes in a few words what is wrong with the store.
func storeTrouble(store objects.Access, err error) string {
	what := ""
	switch {
	case errors.Is(err, objects.ErrFull):
		what = "is full"
	case errors.Is(err, objects.ErrUnavailable):
		what = "is unavailable"
	default:
		return oneLine(err)
	}
	if cause := root(err); !errors.Is(cause, objects.ErrFull) && !errors.Is(cause, objects.ErrUnavailable) {
		what += " (" + oneLine(cause) + ")"
	}
	return fmt.Sprintf("the store %s %s; retrying until it works", store, what)
}

// root returns the innermost error that err wraps, following the last of several.
func root(err error) error {
	for {
		next := errors.Unwrap(err)
		if several, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // checks this very link
			next = several.Unwrap()[len(several.Unwrap())-1]
		}
		if next == nil {
			return err
		}
		err = next
	}
}

func (u *uploader) put(s *outbidv1.ProcessSaved) (*storedFile, error) {
	key := u.saveKey(s)
	sum, shardBytes, err := manifestOf(s)
	if err != nil {
		return nil, err
	}
	size, sums, err := objects.PutFile(u.ctx, u.fork.store(), key, s.GetPath())
	if err != nil {
		return nil, err
	}
	return &storedFile{key: key, size: size, sums: sums, manifest: sum, shardBytes: shardBytes}, nil
}

// store returns the fork's access to the object store. If trials run as other users, files exchanged with them are
// copies of the store's own files.
func (f *fork) store() objects.Access {
	if f.cfg.closed {
		return objects.Copies(f.cfg.Store(f.ref))
	}
	return f.cfg.Store(f.ref)
}
