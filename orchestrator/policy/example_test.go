package policy_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/policytest"
)

// quota runs up to most trials of each tenant, those with the least work left first.
type quota struct{ most int }

func newQuota(o *policy.Options) policy.Policy {
	return quota{most: o.Int("most", 2, 1, 1000, "how many jobs of a tenant run at once")}
}

// Name is the policy's name on the command line and in the ledger.
func (quota) Name() string { return "quota" }

// Decide may preempt: a running trial yields to one with less work left.
func (q quota) Decide(v *policy.View) policy.Plan {
	p := policy.Preempt(v)
	jobs := v.Jobs()
	slices.SortStableFunc(jobs, func(a, b *policy.Job) int {
		return cmp.Compare(v.StepsLeft(a), v.StepsLeft(b))
	})
	running := map[string]int{}
	for _, j := range jobs {
		if tenant := j.App.Tenant; running[tenant] < q.most && p.KeepOrPlace(j, "the least work left") {
			running[tenant]++
		}
	}
	return p.Plan("the least work left, within each tenant's quota", "others have less work left")
}

// Snapshot and Restore do nothing because the policy has no state.
func (quota) Snapshot() ([]byte, error) { return nil, nil }
func (quota) Restore([]byte) error      { return nil }

func TestQuota(t *testing.T) {
	policytest.Run(t, func() policy.Policy { return newQuota(policy.NewOptions(nil)) })
}
