package server

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/plugin"
	"github.com/outbid-dev/outbid/orchestrator/uptime"
	"github.com/outbid-dev/outbid/orchestrator/usage"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// openBus starts NATS in this process, or connects to the configured one.
func (s *Server) openBus(ctx context.Context) error {
	if err := s.natsLink.open(ctx, s.certs); err != nil {
		return err
	}
	s.storage.use(ctx)
	stop := s.room.watch(s.storage.current)
	s.onClose(func() error { stop(); return nil })
	return nil
}

// restoreGC is GOGC while the state is restored. A restore keeps most of the memory that it allocates, so collecting garbage as
// often as usual takes a third of its time and frees little.
const restoreGC = 400

// collectLess makes the collection of garbage rarer until the returned function is called, unless GOGC says how often it is.
func collectLess() (done func()) {
	usual := debug.SetGCPercent(restoreGC)
	if usual != 100 {
		debug.SetGCPercent(usual)
	}
	return func() { debug.SetGCPercent(usual) }
}

// openLoop opens logs, ledger and history, and restores the state.
func (s *Server) openLoop(ctx context.Context) error {
	defer collectLess()()
	var err error
	if s.logs, err = bus.OpenLogs(ctx, s.nc, bus.LogsConfig{Replicas: s.cfg.NATS.Replicas, Logger: s.log}); err != nil {
		return err
	}
	s.onClose(s.logs.Close)
	record, err := ledger.OpenJetStream(ctx, s.nc, s.cfg.ledger(s.archiveStore))
	if err != nil {
		return err
	}
	reports, err := openReportLog(filepath.Join(s.cfg.Data, "history"), s.log)
	if err != nil {
		return err
	}
	s.onClose(reports.Close)
	s.reports, s.record, s.acked, s.stored = reports, record, record.Acked, record.Stored
	reports.use(ctx, record)
	rules, options, err := s.cfg.newPolicy()
	if err != nil {
		return err
	}
	s.warnUnasked(rules)
	if err := s.openBidders(ctx); err != nil {
		return err
	}
	tuners := &tunerHost{}
	s.onClose(tuners.close)
	observe, err := s.observeLoop()
	if err != nil {
		return err
	}
	s.guard = &ledgerGuard{cfg: &s.cfg, log: s.log, nc: s.nc, end: reports.end}
	if err := s.guard.checkLedger(ctx, record); err != nil {
		return s.damaged(err)
	}
	s.scrub = newLedgerScrub(record, s.guard.lost, s.log)
	s.health.lines = []func() *outbidv1.Check{s.storage.check, reports.check, s.scrub.check, s.checkAudit, s.checkCertificate}
	s.loop, err = control.Open(ctx, control.Config{
		Settings: control.Settings{
			MaxPayload: s.maxPayload,
			Limits:     s.limitsOf,
			Room:       s.room.full,
			Version:    s.cfg.Version,
			Lease:      s.cfg.Lease, Overlap: s.overlap(), Term: s.lead.Term(), Store: s.store.String(), Tenants: s.hasTokens(),
			Trust: s.members.isMember, Sign: s.members.signFunction, Seal: s.seal,
			Bidders: s.bidders, NewTuner: tuners.opener(ctx, s.log), Fairness: themis.Fairness,
			NewPolicy: s.cfg.earlierPolicy(s.log), Prices: s.prices.Message,
		},
		Policy: rules, PolicyOptions: options, Ledger: record, History: reports, Samplers: s.cfg.Samplers,
		Send: s.mayOrder(s.members.send), AppendPatience: s.appendPatience(), Confirm: s.confirm,
		Delete: s.store.Delete, Now: time.Now, Uptime: uptime.Open(filepath.Join(s.cfg.Data, "uptime.json")), Logger: s.log, Info: s.health.info, Observe: observe, Changed: sweepSpans{s.tracer}.follower(), Seen: reports.end.record,
	})
	if err != nil {
		return s.damaged(err)
	}
	s.usage = usage.Open(usage.Config{File: filepath.Join(s.cfg.Data, "usage"), Ledger: s.loop.Ledger, Now: s.loop.Now, Log: s.log})
	s.retention = newRetention(s)
	if err := s.registerLoop(); err != nil {
		return err
	}
	s.reserveLogs(ctx)
	s.loop.EachPlace(func(node string, fork *outbidv1.ForkRef, tenant string) {
		s.members.printers.recordRun(node, fork, tenant, time.Now())
	})
	return reports.complete(ctx, record, ids(s.loop.Sweeps()), s.loop.HasReports)
}

func ids(sweeps []*outbidv1.Sweep) []string {
	var out []string
	for _, sweep := range sweeps {
		out = append(out, sweep.GetId())
	}
	return out
}

// start runs the parts; the group stops them in reverse order.
func (s *Server) start(ctx context.Context) {
	s.traces.find.Store(new(s.loop.TraceOf))
	s.group.start(ctx, "control loop", s.runLoop)
	s.group.start(ctx, "NATS", s.watchNATS)
	s.group.start(ctx, "output", func(ctx context.Context) error { return s.logs.Keep(ctx, s.members.mayPrint) })
	s.group.start(ctx, "secrets of tenants", s.vault.Follow)
	s.group.start(ctx, "API tokens", s.accounts.Follow)
	s.group.start(ctx, "bidders", s.watchBidders)
	if s.label != nil {
		s.group.start(ctx, "leader's label", s.label.run)
	}
	for _, w := range s.cfg.Workers {
		s.group.start(ctx, "worker "+w.Name, func(ctx context.Context) error { return s.runWorker(ctx, w) })
	}
	s.group.start(ctx, "API", s.api.Serve)
	s.group.start(ctx, "mark of the ledger's end", s.guard.keepMark)
	s.group.start(ctx, "scrub of the ledger", s.scrub.run)
	if s.cfg.LedgerKeep > 0 {
		s.group.start(ctx, "archive of the ledger", newLedgerArchiver(&s.cfg, s.record, s.loop.Now).run)
	}
	s.group.start(ctx, "store", s.awaitStore)
	s.group.start(ctx, "functions", s.tidyStore)
	s.group.start(ctx, "usage", s.usage.Follow)
	s.group.start(ctx, "deleted sweeps", s.clearDeleted)
	s.group.start(ctx, "retention", s.retention.Run)
	if s.tokens != nil || s.cert != nil || s.limits != nil || s.prices != nil || s.cfg.Reload != nil {
		s.group.start(ctx, "secrets", func(ctx context.Context) error {
			return s.operatorFiles.watch(ctx, func() { s.reserveLogs(ctx) })
		})
	}
	if s.signIn != nil {
		s.group.start(ctx, "OpenID provider", s.findProvider)
	}
}

// orphanAge protects checkpoints whose reports may still be on their way from garbage collection. It also covers clock
// differences, because the store's clock determines an object's age.
const orphanAge = time.Hour

// orphanEvery is the time between two garbage collections in the store. Saves of gangs that lost a process leave shards
// behind.
const orphanEvery = 6 * time.Hour

// collectGarbage removes objects that no ledger entry names from the store, now and repeatedly until ctx ends.
func collectGarbage(ctx context.Context, loop *control.Loop, store objects.Store, log *slog.Logger) {
	again := time.NewTicker(orphanEvery)
	defer again.Stop()
	for {
		n, err := loop.DeleteOrphans(ctx, store, time.Now().Add(-orphanAge))
		switch {
		case err != nil && ctx.Err() == nil:
			log.Warn("the store's garbage collection failed", "err", err)
		case n > 0:
			log.Info("removing checkpoints that a crash left behind", "count", n)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// runLoop runs control, passes uplinks to it, and collects garbage in the store.
func (s *Server) runLoop(ctx context.Context) error {
	uplinks, err := bus.SubscribeUplinks(s.nc, s.members.check, func(up *outbidv1.Uplink) {
		s.members.checkExpiry(up)
		s.loop.Uplink(up)
	})
	if err != nil {
		return err
	}
	answers, err := bus.AnswerAccess(s.nc, s.members.check, s.keys.Orders(), s.answerAccess)
	if err != nil {
		return errors.Join(err, uplinks.Stop())
	}
	var tidy sync.WaitGroup
	tidying, stopTidying := context.WithCancel(ctx)
	tidy.Go(func() {
		s.tidyUploads(tidying)
		collectGarbage(tidying, s.loop, s.store, s.log)
	})
	err = s.loop.Run(ctx)
	stopTidying()
	// Another server may lead by now, so this one's view of leases is out of date, and the store may be unavailable for
	// long.
	stopped := errors.Join(answers.Stop(), uplinks.Stop())
	tidy.Wait()
	if errors.Is(err, ledger.ErrConflict) {
		err = errDeposed
	}
	return errors.Join(err, stopped)
}

// tunerHost opens tuners, and ends those that run as separate programs.
type tunerHost struct {
	mu     sync.Mutex
	open   map[*hosted]bool
	closed bool
}

// hosted is a tuner that runs as a separate program.
type hosted struct {
	tuner.Tuner
	host *tunerHost
	end  func()
}

// Close ends the program. It may be called more than once.
func (t *hosted) Close() {
	t.end()
	t.host.mu.Lock()
	defer t.host.mu.Unlock()
	delete(t.host.open, t)
}

// opener returns a function that starts a tuner, or restores one from a snapshot. It may be called concurrently, and
// takes as long as the program takes to start. Programs end with the host, not with ctx.
func (h *tunerHost) opener(ctx context.Context, log *slog.Logger) func(tuner.Settings, []byte) (tuner.Tuner, error) {
	ctx, h.open = context.WithoutCancel(ctx), map[*hosted]bool{}
	return func(settings tuner.Settings, snapshot []byte) (tuner.Tuner, error) {
		t, end, err := plugin.Open(ctx, settings, snapshot, log)
		if err != nil || settings.Spec.GetTuner().GetPlugin() == nil {
			return t, err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.closed {
			go end()
			return nil, state.ErrStopping
		}
		program := &hosted{t, h, end}
		h.open[program] = true
		return program, nil
	}
}

func (h *tunerHost) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for t := range h.open {
		t.end()
	}
	return nil
}
