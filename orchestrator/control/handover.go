package control

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Begin returns a server's first event as the leader, with its version and policy. It has all options that the policy
// was made with, so that a reader of the ledger can make it again.
func (c *Core) Begin(now time.Time, version string, options map[string]string) (*outbidv1.Event, error) {
	e := &outbidv1.Event{Kind: &outbidv1.Event_OrchestratorStarted{OrchestratorStarted: &outbidv1.OrchestratorStarted{
		Term: c.set.Term, Version: version, Format: state.Format, Policy: &outbidv1.PolicySettings{Name: c.policy.Name(), Options: options},
	}}}
	_, _, err := c.fold(now, e)
	return e, err
}

// install makes a policy decide rounds, or none if p is nil because its rounds are not needed.
func (c *Core) install(p policy.Policy) {
	c.policy, c.stateful, c.preempts = p, false, false
	if p == nil {
		return
	}
	data, err := p.Snapshot()
	c.stateful = err != nil || data != nil
	if taker, ok := p.(policy.Preemptive); ok {
		c.preempts = taker.Preempts()
	}
}

// installPast installs the policy of an earlier server as it was then. Settings that are nil are those of a server
// that did not record them; the core's own policy is used instead.
func (c *Core) installPast(then *outbidv1.PolicySettings) error {
	switch {
	case c.set.NewPolicy == nil:
		return nil
	case then == nil:
		return c.handOver(c.configured)
	case then.GetName() != c.configured.Name():
		c.hasHistory = false
		c.install(nil)
		return nil
	}
	next, err := c.set.NewPolicy(then)
	if err != nil {
		return err
	}
	if err := c.handOver(next); err != nil {
		return err
	}
	c.hasHistory = true
	return nil
}

// installConfigured installs the core's own policy after the replay.
func (c *Core) installConfigured() error {
	if c.set.NewPolicy == nil || c.st.Decider == nil {
		return nil // it is already installed
	}
	if c.hasHistory {
		return c.handOver(c.configured)
	}
	// It may have replaced the policy of an older server, with others since then: start from its initial state.
	if now, err := c.configured.Snapshot(); err == nil && c.initial != nil && !bytes.Equal(now, c.initial) {
		if err := c.configured.Restore(c.initial); err != nil {
			return fmt.Errorf("policy %s: %w", c.configured.Name(), err)
		}
	}
	c.install(c.configured)
	return nil
}

// handOver installs the next policy, which continues from the state of the previous one.
func (c *Core) handOver(next policy.Policy) error {
	if c.policy != nil && c.hasHistory {
		data, err := c.policy.Snapshot()
		if err != nil {
			return fmt.Errorf("snapshot of policy %s: %w", c.policy.Name(), err)
		}
		if data != nil {
			if err := next.Restore(data); err != nil {
				return fmt.Errorf("policy %s cannot restore the state that it saved with other options, %s: %w", next.Name(),
					OptionsText(c.st.Decider.GetOptions()), err)
			}
		}
	}
	c.install(next)
	return nil
}

// OptionsText returns a policy's options on one line, by name.
func OptionsText(options map[string]string) string {
	if len(options) == 0 {
		return "no options"
	}
	parts := make([]string, 0, len(options))
	for _, name := range slices.Sorted(maps.Keys(options)) {
		parts = append(parts, name+"="+options[name])
	}
	return strings.Join(parts, " ")
}
