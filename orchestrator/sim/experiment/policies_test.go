package experiment

import (
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/lab"
)

func TestRoundAndSeedReachPolicies(t *testing.T) {
	t.Parallel()
	all := lab.Policies()
	for _, name := range all.Names() {
		if !all.HasOption(name, "round") || !all.HasOption(name, "seed") {
			continue
		}
		if _, err := PolicyFactories(all, []string{name}, []string{"seed=7"}, time.Minute, 3, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := UnlessGiven(all, []string{"seed=7"}, name, "seed", "3"); len(got) != 1 {
			t.Errorf("%s: a seed that was given is given again: %v", name, got)
		}
		if got := UnlessGiven(all, nil, name, "round", "1m"); len(got) != 1 {
			t.Errorf("%s: its round was not set: %v", name, got)
		}
	}
}
