package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/pods"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// members manages the workers of the cluster: it admits and removes them, checks their signatures, signs messages to
// them, and renews their credentials.
type members struct {
	keys *identity.Keys
	list *bus.Workers
	nc   *nats.Conn
	log  *slog.Logger
	// natsURL is the address of NATS for workers.
	natsURL string
	refused *refusals
	// printers determines which nodes may send a trial's output.
	printers *printers
	// pods checks the tokens of pods; nil admits none. alive reports whether a node's worker is connected.
	pods     *pods.Admission
	alive    func(node string) bool
	podJoins sync.Mutex

	mu sync.Mutex
	// renewed has new credentials by node, until the worker confirms them.
	renewed map[string]string
}

// openMembers opens the list of workers. If NATS is in this process, it disconnects workers that are removed from the
// list.
func (s *Server) openMembers(ctx context.Context) error {
	m := &members{
		keys: s.keys, nc: s.nc, log: s.log, natsURL: s.natsURL, renewed: make(map[string]string), refused: newRefusals(s.log),
		printers: newPrinters(), alive: s.isAlive,
	}
	var err error
	if m.pods, err = s.cfg.openPods(); err != nil {
		return err
	}
	if s.cfg.NATS.Public != "" {
		m.natsURL = s.cfg.NATS.Public
	}
	if err := s.registry.Register(m.refused.counted); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	m.list, err = bus.OpenWorkers(ctx, s.nc, bus.WorkersConfig{
		Replicas: s.cfg.NATS.Replicas, Gone: s.cutOff, Verifier: s.keys.Verifier, Logger: s.log,
	})
	if err != nil {
		return err
	}
	s.onClose(m.list.Close)
	s.members = m
	return m.list.Pin(ctx, s.keys.Orders().Public())
}

// cutOff revokes a user of NATS.
func (s *Server) cutOff(public string) {
	token, err := s.keys.Revoke(public, s.cfg.Now())
	if errors.Is(err, identity.ErrReadOnly) {
		err = nil // the list is only for 'outbid nats init', which does not run where keys are a Secret
	}
	if err == nil && s.embedded != nil {
		err = s.embedded.Revoke(token)
	}
	if err != nil {
		s.log.Warn("a removed worker may stay connected to NATS until its credentials expire; its messages are "+
			"ignored", "error", err)
	}
}

// isMember reports whether the worker of a node has joined. Control sees only nodes whose uplinks had valid signatures.
func (m *members) isMember(node string) bool { return m.list.Key(node) != "" }

// check checks the signatures of uplinks.
func (m *members) check(subject string, data []byte, signature string) error {
	err := m.list.Check(subject, data, signature)
	if err != nil {
		m.refused.note(subject, err)
	}
	return err
}

// mayPrint reports whether a worker's chunk of a trial's output is accepted.
func (m *members) mayPrint(c *outbidv1.LogChunk) bool {
	may := m.printers.may(c, time.Now())
	if !may {
		m.refused.note(bus.LogSubject(c), errNotIts)
	}
	return may
}

// signFunction signs that this server accepted a function, given by the hex SHA-256 of its blob.
func (m *members) signFunction(blob string) []byte {
	return m.keys.Orders().SignFunction(blob)
}

// checkExpiry checks an uplink for credentials that expire soon.
func (m *members) checkExpiry(up *outbidv1.Uplink) {
	end, node := up.GetCredentialsExpireUnix(), up.GetNode()
	due := end != 0 && time.Until(time.Unix(end, 0)) < identity.WorkerLife/2
	m.mu.Lock()
	defer m.mu.Unlock()
	if !due {
		delete(m.renewed, node)
		return
	}
	if m.renewed[node] != "" {
		return
	}
	token, err := m.keys.IssueWorker(node, m.list.Key(node), time.Now())
	if err != nil {
		m.log.Warn("the credentials of a worker could not be renewed", "node", node, "error", err)
		return
	}
	m.renewed[node] = token
}

// send signs and sends orders. It sends none to a node whose worker has not joined.
func (m *members) send(o *outbidv1.Orders) error {
	if !m.isMember(o.GetNode()) {
		return nil
	}
	m.printers.recordOrders(o, time.Now())
	m.mu.Lock()
	o.Credentials = m.renewed[o.GetNode()]
	m.mu.Unlock()
	return bus.PublishOrders(m.nc, o, m.keys.Orders())
}

// NewToken implements api.Workers.
func (m *members) NewToken(ctx context.Context, node string, life time.Duration) (string, time.Time, error) {
	now := time.Now()
	expires := now.Add(life)
	token, err := m.list.NewToken(ctx, node, now, expires)
	if err == nil {
		m.log.Info("created a join token", "node", node, "expires", expires)
	}
	return token, expires, err
}

// Join implements api.Workers.
func (m *members) Join(ctx context.Context, token, node, public string) (*outbidv1.JoinWorkerResponse, error) {
	now := time.Now()
	if pods.IsToken(token) {
		return m.joinPod(ctx, token, node, public, now)
	}
	node, err := m.list.Spend(ctx, token, node, now)
	if err != nil {
		return nil, err
	}
	resp, err := m.admit(ctx, node, public, nil, now)
	if err == nil {
		m.log.Info("a worker has joined", "node", node, "key", public)
	}
	return resp, err
}

// admit makes a public key that of a node's worker. pod identifies its pod, or is nil.
func (m *members) admit(ctx context.Context, node, public string, pod []byte, now time.Time) (*outbidv1.JoinWorkerResponse, error) {
	issued, err := m.keys.IssueWorker(node, public, now)
	if err != nil {
		return nil, err
	}
	if err := m.list.AddPod(ctx, node, public, pod, now); err != nil {
		return nil, err
	}
	return &outbidv1.JoinWorkerResponse{
		Node: node, Credentials: issued, OrdersKey: m.keys.Orders().Public(), Nats: m.natsURL,
		Expires: timestamppb.New(now.Add(identity.WorkerLife)),
	}, nil
}

// Remove implements api.Workers.
func (m *members) Remove(ctx context.Context, node string) error {
	err := m.list.Remove(ctx, node)
	if err == nil {
		m.log.Info("a worker was removed", "node", node)
	}
	return err
}

// refusals counts messages that were dropped because of their signature, and logs them occasionally.
type refusals struct {
	counted *prometheus.CounterVec
	log     *slog.Logger

	mu   sync.Mutex
	last map[string]time.Time
}

// refusalEvery is how often the same complaint is logged.
const refusalEvery = time.Minute

func newRefusals(log *slog.Logger) *refusals {
	return &refusals{
		counted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbid_refused_messages_total", Help: "Messages on the bus that were dropped, because they were not signed by a known worker or were about trials that the worker does not run.",
		}, []string{"reason"}),
		log: log, last: make(map[string]time.Time),
	}
}

// errNotIts is why output is dropped.
var errNotIts = errors.New("it sent output of a trial that it does not run")

func (r *refusals) note(subject string, err error) {
	reason := "signature"
	switch {
	case errors.Is(err, bus.ErrStranger):
		reason = "stranger"
	case errors.Is(err, errNotIts):
		reason = "output"
	}
	r.counted.WithLabelValues(reason).Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.last[subject]) < refusalEvery {
		return
	}
	if len(r.last) > 1000 { // a client is making up names
		clear(r.last)
	}
	r.last[subject] = now
	node := bus.NodeOf(subject)
	r.log.Warn("dropping a message in the name of a worker", "node", node, "reason", err)
}
