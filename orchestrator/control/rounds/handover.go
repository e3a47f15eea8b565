package rounds

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// install makes a policy decide rounds, or none if p is nil because its rounds are not needed.
func (rs *Rounds) install(p policy.Policy) {
	rs.policy, rs.stateful, rs.preempts = p, false, false
	if p == nil {
		return
	}
	data, err := p.Snapshot()
	rs.stateful = err != nil || data != nil
	if taker, ok := p.(policy.Preemptive); ok {
		rs.preempts = taker.Preempts()
	}
}

// InstallPast installs the policy of an earlier server as it was then. Settings that are nil are those of a server
// that did not record them; the core's own policy is used instead.
func (rs *Rounds) InstallPast(then *outbidv1.PolicySettings) error {
	switch {
	case rs.set.NewPolicy == nil:
		return nil
	case then == nil:
		return rs.handOver(rs.configured)
	case then.GetName() != rs.configured.Name():
		rs.hasHistory = false
		rs.install(nil)
		return nil
	}
	next, err := rs.set.NewPolicy(then)
	if err != nil {
		return err
	}
	if err := rs.handOver(next); err != nil {
		return err
	}
	rs.hasHistory = true
	return nil
}

// InstallConfigured installs the core's own policy after the replay.
func (rs *Rounds) InstallConfigured() error {
	if rs.set.NewPolicy == nil || rs.st.Decider == nil {
		return nil // it is already installed
	}
	if rs.hasHistory {
		return rs.handOver(rs.configured)
	}
	// Another policy decided since this one last did: start from its initial state.
	if now, err := rs.configured.Snapshot(); err == nil && rs.initial != nil && !bytes.Equal(now, rs.initial) {
		if err := rs.configured.Restore(rs.initial); err != nil {
			return fmt.Errorf("policy %s: %w", rs.configured.Name(), err)
		}
	}
	rs.install(rs.configured)
	return nil
}

// handOver installs the next policy, which continues from the state of the previous one.
func (rs *Rounds) handOver(next policy.Policy) error {
	if rs.policy != nil && rs.hasHistory {
		data, err := rs.policy.Snapshot()
		if err != nil {
			return fmt.Errorf("snapshot of policy %s: %w", rs.policy.Name(), err)
		}
		if data != nil {
			if err := next.Restore(data); err != nil {
				return fmt.Errorf("policy %s cannot restore the state that it saved with other options, %s: %w", next.Name(),
					OptionsText(rs.st.Decider.GetOptions()), err)
			}
		}
	}
	rs.install(next)
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

// Load restores the policy from a snapshot of the core.
func (rs *Rounds) Load(snap *outbidv1.StateSnapshot) error {
	if rs.st.Decider != nil {
		if err := rs.InstallPast(rs.st.Decider); err != nil {
			return err
		}
	}
	if rs.policy != nil && snap.GetPolicyName() == rs.policy.Name() && snap.GetPolicy() != nil {
		if err := rs.policy.Restore(snap.GetPolicy()); err != nil {
			return fmt.Errorf("policy %s: %w", rs.policy.Name(), err)
		}
		rs.hasHistory = true
	}
	return nil
}

// Snapshot adds the policy to a snapshot of the core.
func (rs *Rounds) Snapshot(snap *outbidv1.StateSnapshot) error {
	data, err := rs.policy.Snapshot()
	if err != nil {
		return fmt.Errorf("snapshot of policy %s: %w", rs.policy.Name(), err)
	}
	snap.Policy, snap.PolicyName = data, rs.policy.Name()
	return nil
}
