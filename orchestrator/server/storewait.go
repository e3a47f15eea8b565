package server

import (
	"context"
	"errors"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/objects"
)

// storeEvery is how often an unavailable store is checked.
const storeEvery = 2 * time.Second

// awaitStore logs that the store is unavailable when the server starts, and when it is available. The server runs in
// the meantime: trials and uploads wait where they need the store.
func (a *storeAccess) awaitStore(ctx context.Context) error {
	tick := time.NewTicker(storeEvery)
	defer tick.Stop()
	problem := ""
	for {
		err := checkStore(ctx, a.store)
		switch {
		case ctx.Err() != nil:
		case err == nil && problem != "":
			a.log.Info("the store answers", "store", a.store.String())
			fallthrough
		case err == nil:
			problem = "none"
		case errors.Is(err, objects.ErrUnavailable) && problem != "away":
			problem = "away"
			a.log.Warn("the store is unavailable; the server runs, and operations that need the store wait for it", "store", a.store.String(),
				"err", err)
		case !errors.Is(err, objects.ErrUnavailable) && err.Error() != problem:
			problem = err.Error()
			a.log.Error("the store rejects this server; fix its settings or the credentials", "store", a.store.String(),
				"err", err)
		}
		if problem == "none" {
			<-ctx.Done()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// tidyStore deletes unused functions and the remains of interrupted uploads, once per orphanAge. It deletes functions
// only after the first interval, so that a client that uploaded one before this start has time to submit its sweep.
func (s *Server) tidyStore(ctx context.Context) error {
	tick := time.NewTicker(orphanAge)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		s.tidyUploads(ctx)
		switch n, err := s.api.TidyBlobs(ctx, time.Now().Add(-orphanAge)); {
		case err != nil && ctx.Err() == nil:
			s.log.Warn("the store's garbage collection failed", "err", err)
		case n > 0:
			s.log.Info("functions that no sweep uses were deleted", "count", n)
		}
	}
}

// tidyUploads deletes the remains of uploads by workers that ended during the upload.
func (a *storeAccess) tidyUploads(ctx context.Context) {
	store, ok := a.store.(objects.Tidier)
	if !ok {
		return
	}
	switch n, err := store.Tidy(ctx, time.Now().Add(-objects.StaleAfter)); {
	case err != nil && ctx.Err() == nil:
		a.log.Warn("the store's garbage collection failed", "err", err)
	case n > 0:
		a.log.Info("interrupted uploads were deleted", "count", n)
	}
}

// checkStore asks a store for an object that does not exist. Any other answer is an error.
func checkStore(ctx context.Context, store objects.Store) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if _, err := store.Stat(ctx, "checks/none"); err != nil && !errors.Is(err, objects.ErrNotFound) {
		return err
	}
	return nil
}
