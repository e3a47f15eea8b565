package server

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/state"
)

// followEvery is how often an orchestrator that stands by looks at what the leader has appended.
const followEvery = 5 * time.Second

// followLedger keeps this machine's history of reports up to date while another orchestrator leads, so that taking over
// does not wait for what was reported meanwhile. give is called with a state.ErrNewer if a newer version leads, after which
// this one cannot. The function it returns ends that.
func (s *Server) followLedger(ctx context.Context, give func(error)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		switch err := s.follow(ctx); {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, state.ErrNewer):
			give(err)
		default:
			s.log.Warn("the history of reports does not follow the leader; taking over will take longer", "err", err)
		}
	})
	return func() { cancel(); done.Wait() }
}

func (s *Server) follow(ctx context.Context) (err error) {
	record, err := ledger.OpenJetStream(ctx, s.nc, ledger.Config{Replicas: s.cfg.NATS.Replicas, Logger: s.log})
	if err == nil {
		err = acceptGivenUp(ctx, s.nc, record)
	}
	if err != nil {
		return err
	}
	reports, err := openReportLog(filepath.Join(s.cfg.Data, "history"), s.log)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := reports.Close(); err == nil {
			err = closeErr
		}
	}()
	reports.use(ctx, record)
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		if err := reports.catchUp(ctx, record); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
