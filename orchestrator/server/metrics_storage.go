package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// storageFresh is how long NATS's answer is cached.
	storageFresh = 10 * time.Second
	// storageTimeout limits how long NATS may take to answer.
	storageTimeout = 2 * time.Second
	// scrapePatience is how long a scrape waits for NATS's answer. NATS's client may block for longer than any timeout
	// while it connects again.
	scrapePatience = 200 * time.Millisecond
)

// storageMetrics exports how much the NATS servers store. It exports nothing while they do not answer.
type storageMetrics struct {
	server      *Server
	used, limit *prometheus.Desc

	mu  sync.Mutex
	at  time.Time
	all []bus.Storage
	// asking is closed once NATS has answered; it is nil if NATS is not being asked.
	asking chan struct{}
	// ask asks NATS; it is nil without a connection.
	ask func(context.Context) ([]bus.Storage, error)
	// complained is set once the error was logged.
	complained bool
}

func newStorageMetrics(s *Server) *storageMetrics {
	s.storage = &storageMetrics{
		server: s,
		used:   prometheus.NewDesc("outbid_nats_storage_bytes", "Bytes of files that JetStream uses on a NATS server.", []string{"server"}, nil),
		limit: prometheus.NewDesc("outbid_nats_storage_limit_bytes",
			"Bytes of files that JetStream may use on a NATS server (max_file_store); absent where it is not known.", []string{"server"}, nil),
	}
	return s.storage
}

// Describe implements prometheus.Collector.
func (m *storageMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.used
	ch <- m.limit
}

// Collect implements prometheus.Collector.
func (m *storageMetrics) Collect(ch chan<- prometheus.Metric) {
	select {
	case <-m.refresh():
	case <-time.After(scrapePatience):
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.all {
		ch <- prometheus.MustNewConstMetric(m.used, prometheus.GaugeValue, float64(s.Used), s.Server)
		if s.Limit > 0 {
			ch <- prometheus.MustNewConstMetric(m.limit, prometheus.GaugeValue, float64(s.Limit), s.Server)
		}
	}
}

// current returns the storage of the NATS servers, or nil if they do not answer.
func (m *storageMetrics) current() []bus.Storage {
	<-m.refresh()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all
}

// refresh asks NATS unless its last answer is recent. The returned channel is closed once the answer is current.
func (m *storageMetrics) refresh() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.asking != nil {
		return m.asking
	}
	answered := make(chan struct{})
	if m.ask == nil || time.Since(m.at) < storageFresh {
		close(answered)
		return answered
	}
	m.asking = answered
	go m.query(m.ask, answered)
	return answered
}

// nearlyFullAt is the used part of a NATS server's storage that the doctor and an alert report.
const nearlyFullAt = .8

// check returns the doctor's check of the storage, or nil if no limit is known.
func (m *storageMetrics) check() *outbidv1.Check {
	m.mu.Lock()
	defer m.mu.Unlock()
	var c *outbidv1.Check
	for _, s := range m.all {
		if s.Limit <= 0 || c != nil && !c.GetOk() {
			continue
		}
		c = &outbidv1.Check{
			Name: "storage", Ok: float64(s.Used) < nearlyFullAt*float64(s.Limit),
			Detail: fmt.Sprintf("NATS server %s stores %s of at most %s (max_file_store)", s.Server, humanize.IBytes(uint64(s.Used)), humanize.IBytes(uint64(s.Limit))),
		}
		if !c.GetOk() {
			c.Fix = "make space on the disk of NATS and raise max_file_store; new sweeps are refused when 95 % is used"
		}
	}
	return c
}

// query asks NATS and stores its answer.
func (m *storageMetrics) query(ask func(context.Context) ([]bus.Storage, error), answered chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), storageTimeout)
	defer cancel()
	all, err := ask(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil && !m.complained {
		m.server.log.Warn("the storage usage of NATS is unknown, and missing from the metrics", "err", err)
	}
	m.all, m.at, m.complained, m.asking = all, time.Now(), err != nil, nil
	close(answered)
}

// use sets how NATS is asked: the server in this process, or every server of a cluster. If these do not answer, because
// NATS has other kinds of users, it asks for the account's usage.
func (m *storageMetrics) use(ctx context.Context) {
	s := m.server
	account := func(ctx context.Context) ([]bus.Storage, error) {
		one, err := bus.AccountStorage(ctx, s.nc)
		return []bus.Storage{one}, err
	}
	ask := account
	switch o := s.cfg.NATS; {
	case s.embedded != nil:
		ask = func(context.Context) ([]bus.Storage, error) {
			one, err := s.embedded.Storage()
			return []bus.Storage{one}, err
		}
	case o.Creds == "" && o.NKey == "":
		observer, err := m.observer(ctx)
		if err != nil {
			s.log.Debug("NATS does not permit this server to read its storage usage; the metrics show the account's usage", "err", err)
			break
		}
		ask = func(ctx context.Context) ([]bus.Storage, error) {
			all, err := bus.AskStorage(ctx, observer)
			if errors.Is(err, nats.ErrNoResponders) {
				return account(ctx)
			}
			return all, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ask = ask
}

// observer connects to NATS as the user that may read its storage usage.
func (m *storageMetrics) observer(ctx context.Context) (*nats.Conn, error) {
	who, err := m.server.keys.Observer()
	if err != nil {
		return nil, err
	}
	nc, err := m.server.cfg.NATS.connect(ctx, who, nil, "metrics of orchestrator "+m.server.cfg.Name, m.server.log)
	if err != nil {
		return nil, err
	}
	m.server.onClose(func() error {
		nc.Close()
		return nil
	})
	return nc, nil
}
