package server

import (
	"context"
	"errors"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/objects"
)

// storeEvery is how often a store that was away at the start is looked for.
const storeEvery = 2 * time.Second

// awaitStore says that the store is away when the server starts, and when it is there. The server runs meanwhile: trials
// wait where they need the store, and so do those who send functions.
func (s *Server) awaitStore(ctx context.Context) error {
	tick := time.NewTicker(storeEvery)
	defer tick.Stop()
	problem := ""
	for {
		err := lookInto(ctx, s.store)
		switch {
		case ctx.Err() != nil:
		case err == nil && problem != "":
			s.log.Info("the store answers", "store", s.store.String())
			fallthrough
		case err == nil:
			problem = "none"
		case errors.Is(err, objects.ErrUnavailable) && problem != "away":
			problem = "away"
			s.log.Warn("the store is away; the server runs on, and what needs the store waits for it", "store", s.store.String(),
				"err", err)
		case !errors.Is(err, objects.ErrUnavailable) && err.Error() != problem:
			problem = err.Error()
			s.log.Error("the store refuses this server; mend its settings or the credentials", "store", s.store.String(),
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

// tidyStore deletes functions that no sweep uses, and what broken-off uploads left, once in orphanAge. Functions go the first
// time only when whoever sent one before this server started has had time to submit its sweep.
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
			s.log.Warn("the store could not be tidied", "err", err)
		case n > 0:
			s.log.Info("functions that no sweep uses were deleted", "count", n)
		}
	}
}

// tidyUploads clears away what workers left behind that ended in the middle of an upload.
func (s *Server) tidyUploads(ctx context.Context) {
	store, ok := s.store.(objects.Tidier)
	if !ok {
		return
	}
	switch n, err := store.Tidy(ctx, time.Now().Add(-objects.StaleAfter)); {
	case err != nil && ctx.Err() == nil:
		s.log.Warn("the store could not be tidied", "err", err)
	case n > 0:
		s.log.Info("uploads that never ended were given up", "count", n)
	}
}

// lookInto asks a store for an object that is not there: whatever else it answers is an error.
func lookInto(ctx context.Context, store objects.Store) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if _, err := store.Stat(ctx, "checks/none"); err != nil && !errors.Is(err, objects.ErrNotFound) {
		return err
	}
	return nil
}
