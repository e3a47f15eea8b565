package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outbid-dev/outbid/orchestrator/bus"
)

const (
	// storageFresh is how long NATS's answer is cached.
	storageFresh = 10 * time.Second
	// storageTimeout limits how long a scrape waits for NATS.
	storageTimeout = 2 * time.Second
)

// storageMetrics exports how much the NATS servers store. It exports nothing while they do not answer.
type storageMetrics struct {
	server      *Server
	used, limit *prometheus.Desc

	mu  sync.Mutex
	at  time.Time
	all []bus.Storage
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
	for _, s := range m.current() {
		ch <- prometheus.MustNewConstMetric(m.used, prometheus.GaugeValue, float64(s.Used), s.Server)
		if s.Limit > 0 {
			ch <- prometheus.MustNewConstMetric(m.limit, prometheus.GaugeValue, float64(s.Limit), s.Server)
		}
	}
}

func (m *storageMetrics) current() []bus.Storage {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ask == nil || time.Since(m.at) < storageFresh {
		return m.all
	}
	ctx, cancel := context.WithTimeout(context.Background(), storageTimeout)
	defer cancel()
	all, err := m.ask(ctx)
	if err != nil && !m.complained {
		m.server.log.Warn("the storage usage of NATS is unknown, and missing from the metrics", "err", err)
	}
	m.all, m.at, m.complained = all, time.Now(), err != nil
	return m.all
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
