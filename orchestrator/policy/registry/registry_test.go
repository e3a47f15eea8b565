package registry_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
)

func TestUnknownPolicyErrorListsPolicies(t *testing.T) {
	t.Parallel()
	_, err := registry.Product().New("themes", nil)
	if err == nil || !strings.Contains(err.Error(), `"themes"; there are astraea, `) {
		t.Fatalf("error was %v", err)
	}
}

func TestWithAddsAndReplacesInACopy(t *testing.T) {
	t.Parallel()
	product := registry.Product()
	more := product.With(map[string]registry.Maker{
		"mine": func(o *policy.Options) policy.Policy { return baseline.FIFO{Workers: o.Int("workers", 1, 1, 9, "")} },
		"fifo": func(*policy.Options) policy.Policy { return baseline.DRF{} },
	})
	if !more.HasOption("mine", "workers") || more.HasOption("mine", "other") || slices.Contains(product.Names(), "mine") {
		t.Errorf("with a policy there are %v, without it %v", more.Names(), product.Names())
	}
	for want, r := range map[string]registry.Registry{"fifo": product, "drf": more} {
		if p, err := r.New("fifo", nil); err != nil || p.Name() != want {
			t.Errorf("fifo is %v, %v, want %s", p, err, want)
		}
	}
	if !(registry.Registry{}).Empty() || product.Empty() {
		t.Error("Empty is wrong")
	}
}

// The options of the product are those that an operator sets; others belong into the lab.
func TestPoliciesHaveFewOptions(t *testing.T) {
	t.Parallel()
	for _, name := range registry.Product().Names() {
		if n := len(registry.Product().Options(name)); n > 9 {
			t.Errorf("%s has %d options", name, n)
		}
	}
}
