package lab_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

// The weights of tenants affect every policy that divides by tenants: of two tenants that always want the whole
// cluster, one with three times the weight holds three times as much. A policy's option takes precedence.
func TestPoliciesShareOutByTenantsWeights(t *testing.T) {
	t.Parallel()
	for name, given := range map[string]map[string]string{
		"astraea": {"weights": "light=1,heavy=1"}, "gandiva-fair": {"tickets": "light=1,heavy=1"}, "yarn-cs": {"shares": "light=1,heavy=1"},
		"hived": {"quota": "light=1,heavy=1"}, "drf": nil, "allox": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := map[string]string{}
			if name == "allox" {
				own["fair"], own["alpha"] = "tenant", "0"
			}
			if got := ratioHeld(t, name, own); math.Abs(got-3) > .45 {
				t.Errorf("the tenant of weight 3 held %.2f times the other's device time", got)
			}
			if given == nil {
				return
			}
			if got := ratioHeld(t, name, given); math.Abs(got-1) > .15 {
				t.Errorf("with %v it held %.2f times the other's device time", given, got)
			}
		})
	}
}

// ratioHeld runs two tenants with weights 1 and 3 that have more jobs than devices, and returns the ratio of their
// device times.
func ratioHeld(t *testing.T, name string, options map[string]string) float64 {
	t.Helper()
	p, err := lab.Policies().New(name, policy.NewOptions(options))
	if err != nil {
		t.Fatal(err)
	}
	s := stagetest.New(stagetest.Nodes("v100", 4, 4, 4)...)
	s.Tenants = []policy.Tenant{{Name: "heavy", Weight: 3}, {Name: "light", Weight: 1}}
	for i := range 400 {
		for _, tenant := range []string{"light", "heavy"} {
			s.Job(s.App(fmt.Sprintf("%s-%d", tenant, i), tenant), 1, 1, 1800)
		}
	}
	s.Run(t, p, 8*time.Hour)
	return s.Held["heavy"] / s.Held["light"]
}
