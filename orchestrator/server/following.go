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

// followEvery is how often a standby reads what the leader has appended.
const followEvery = 5 * time.Second

// followLedger keeps this machine's history of reports up to date while another server leads, so that a takeover does
// not wait for it. If a newer version leads, this one can no longer take over, and followLedger calls give with a
// state.ErrNewer. The returned function stops following.
func (ld *leadership) followLedger(ctx context.Context, give func(error)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		switch err := ld.follow(ctx); {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, state.ErrNewer):
			give(err)
		default:
			ld.log.Warn("the history of reports cannot follow the leader; a takeover will take longer", "err", err)
		}
	})
	return func() { cancel(); done.Wait() }
}

func (ld *leadership) follow(ctx context.Context) (err error) {
	record, err := ledger.OpenJetStream(ctx, ld.nc, ledger.Config{Replicas: ld.cfg.NATS.Replicas, Logger: ld.log, OpenStore: ld.openArchive})
	if err == nil {
		err = acceptGivenUp(ctx, ld.nc, record)
	}
	if err != nil {
		return err
	}
	reports, err := openReportLog(filepath.Join(ld.cfg.Data, "history"), ld.log)
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
