package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/pods"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// openPods opens the check of pods' tokens, if any ServiceAccount may join.
func (c *Config) openPods() (*pods.Admission, error) {
	s := c.ServiceAccounts
	if len(s.Accounts) == 0 {
		if s.Issuer != "" || s.Keys != "" || s.CAFile != "" {
			return nil, badField("ServiceAccounts.Accounts", "missing: name the ServiceAccounts whose pods may join, as NAMESPACE/NAME")
		}
		return nil, nil //nolint:nilnil // pods are not admitted
	}
	a, err := pods.Open(s)
	if errors.Is(err, pods.ErrAccounts) {
		return nil, badField("ServiceAccounts.Accounts", "%w", err)
	}
	if err != nil {
		return nil, badField("ServiceAccounts.Accounts", "the tokens of ServiceAccounts cannot be checked: %w", err)
	}
	return a, nil
}

// leaderLabel marks the leader's pod.
type leaderLabel struct {
	*pods.Label
	log  *slog.Logger
	text string
}

// openLabel opens the label of the leader's pod, or returns nil without one. It removes the label that a killed server
// has left.
func openLabel(ctx context.Context, text string, log *slog.Logger) (*leaderLabel, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // the leader has no label
	}
	l, err := pods.OpenLabel(text)
	if err != nil {
		return nil, badField("LeaderLabel", "%w", err)
	}
	if err := l.Remove(ctx); err != nil {
		log.Warn("the leader's label of this pod cannot be removed", "error", err)
	}
	return &leaderLabel{l, log, text}, nil
}

// run labels this pod as the leader's until ctx ends.
func (l *leaderLabel) run(ctx context.Context) error {
	l.Keep(ctx, func(err error) {
		l.log.Warn("this pod cannot be labelled as the leader's; the Service does not find it", "label", l.text, "error", err)
	})
	return nil
}

// joinPod admits the worker of a pod. A pod may join again and again, because its container restarts and because a pod
// that was rescheduled succeeds it.
func (m *members) joinPod(ctx context.Context, token, asked, public string, now time.Time) (*outbidv1.JoinWorkerResponse, error) {
	if m.pods == nil {
		return nil, fmt.Errorf("%w: this server does not admit pods: it needs --service-accounts NAMESPACE/NAME", bus.ErrJoinToken)
	}
	pod, err := m.pods.Check(ctx, token)
	if err != nil {
		return nil, err
	}
	node, err := pod.ChooseName(asked)
	if err != nil {
		return nil, err
	}
	m.podJoins.Lock() // two pods could find the same name free
	defer m.podJoins.Unlock()
	if err := m.mayTake(ctx, pod, node); err != nil {
		return nil, err
	}
	data, err := json.Marshal(pod)
	if err != nil {
		return nil, fmt.Errorf("join of pod %s: %w", pod, err)
	}
	resp, err := m.admit(ctx, node, public, data, now)
	if err == nil {
		m.log.Info("a pod has joined", "node", node, "pod", pod.String(), "account", pod.Account, "uid", pod.UID, "on", pod.Node, "key", public)
	}
	return resp, err
}

// mayTake returns nil if a pod may take the name of a node.
func (m *members) mayTake(ctx context.Context, pod pods.Pod, node string) error {
	data, joined, err := m.list.Pod(ctx, node)
	if err != nil || !joined {
		return err
	}
	if data == nil {
		return fmt.Errorf("%w: worker %s joined with a join token; remove it with 'outbid worker remove %s'", pods.ErrTaken, node, node)
	}
	var holder pods.Pod
	if err := json.Unmarshal(data, &holder); err != nil {
		return fmt.Errorf("read the pod of worker %s: %w", node, err)
	}
	return pod.MayReplace(holder, node, m.alive(node))
}

// isAlive reports whether a node's worker is connected.
func (s *Server) isAlive(node string) bool {
	for _, n := range s.loop.Nodes() {
		if n.GetInfo().GetName() == node {
			return n.GetState() == outbidv1.NodeState_NODE_STATE_UP || n.GetState() == outbidv1.NodeState_NODE_STATE_DRAINING
		}
	}
	return false
}
