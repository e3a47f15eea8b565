package experiment

import (
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
)

func TestRoundAndSeedReachPolicies(t *testing.T) {
	t.Parallel()
	for _, name := range registry.Names() {
		if !hasOption(name, "round") || !hasOption(name, "seed") {
			continue
		}
		if _, err := PolicyFactories([]string{name}, []string{"seed=7"}, time.Minute, 3, false); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := unlessGiven([]string{"seed=7"}, name, "seed", "3"); len(got) != 1 {
			t.Errorf("%s: a seed that was given is given again: %v", name, got)
		}
		if got := unlessGiven(nil, name, "round", "1m"); len(got) != 1 {
			t.Errorf("%s: its round was not set: %v", name, got)
		}
	}
}
