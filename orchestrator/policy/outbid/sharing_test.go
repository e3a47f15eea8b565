package outbid_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis"
)

// placing records which trials a policy starts, renews and stops, without the reasons.
type placing struct {
	policy.Policy

	said []string
}

func (r *placing) Decide(v *policy.View) policy.Plan {
	plan := r.Policy.Decide(v)
	for _, g := range plan.Grants {
		r.said = append(r.said, fmt.Sprint("grant ", g.Job.Name(), g.Gang, g.TermEnd))
	}
	for _, g := range plan.Renews {
		r.said = append(r.said, fmt.Sprint("renew ", g.Job.Name(), g.TermEnd))
	}
	for _, g := range plan.Revokes {
		r.said = append(r.said, fmt.Sprint("revoke ", g.Job.Name()))
	}
	return plan
}

// The sweeps of the only tenant share the cluster like as many tenants with a sweep each.
func TestSweepsOfOneTenantShareLikeTenants(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		one, each := &placing{Policy: create(t)}, &placing{Policy: create(t)}
		drawn(seed, "k80", 1).Run(t, one, 6*time.Hour)
		s := drawn(seed, "k80", 1)
		for _, a := range s.Apps {
			a.Tenant = "tenant-" + a.ID
		}
		s.Run(t, each, 6*time.Hour)
		if len(one.said) < 20 || !slices.Equal(one.said, each.said) {
			t.Errorf("seed %d: %d decisions with one tenant, %d with a tenant for each sweep, and they differ", seed, len(one.said), len(each.said))
		}
	}
}

// A tenant that splits its sweep of 64 trials into eight sweeps gains nothing from it. Under Themis, where every sweep
// counts, it ends much earlier at the cost of the others.
func TestSplittingASweepPaysNothing(t *testing.T) {
	t.Parallel()
	end := func(p policy.Policy, pieces int) time.Duration {
		const trials = 64
		s := stagetest.New(stagetest.Nodes("v100", 8, 4, 4)...)
		s.Stop = 5 * time.Second
		add := func(tenant string, sweeps int) {
			for i := range sweeps {
				a := s.App(fmt.Sprint(tenant, "-", i), tenant)
				a.Speeds, a.Demand, a.Tuner, a.TotalSteps = &cluster.Speeds{}, cluster.Demand{Min: 1, Max: 1}, "random", 3600
				for range trials / sweeps {
					s.Job(a, 1, 1, 3600)
				}
			}
		}
		add("splits", pieces)
		for i := range 3 {
			add(fmt.Sprint("other", i), 1)
		}
		s.Run(t, p, 48*time.Hour)
		last := time.Duration(0)
		for job, after := range s.Ended {
			if len(job.App) > 6 && job.App[:6] == "splits" {
				last = max(last, after)
			}
		}
		return last
	}
	whole, split := end(create(t), 1), end(create(t), 8)
	if split < whole-15*time.Minute {
		t.Errorf("the tenant's trials end after %s, split into eight sweeps after %s", whole, split)
	}
	whole, split = end(themis.New(policy.NewOptions(nil)), 1), end(themis.New(policy.NewOptions(nil)), 8)
	if split > whole*3/4 {
		t.Errorf("under Themis they end after %s, split after %s: the comparison shows nothing", whole, split)
	}
}
