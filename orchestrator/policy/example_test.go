package policy_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/policytest"
)

// quota lets the jobs of each tenant with the least work left run, at most so many at once.
type quota struct{ most int }

func newQuota(o *policy.Options) policy.Policy {
	return quota{most: o.Int("most", 2, 1, 1000, "how many jobs of a tenant run at once")}
}

// Name is how the command line and the ledger call it.
func (quota) Name() string { return "quota" }

// Decide takes devices from running jobs too: a job with more work left gives way to one with less.
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

// Snapshot and Restore keep what the policy remembers: nothing.
func (quota) Snapshot() ([]byte, error) { return nil, nil }
func (quota) Restore([]byte) error      { return nil }

func TestQuota(t *testing.T) {
	policytest.Run(t, func() policy.Policy { return newQuota(policy.NewOptions(nil)) })
}
