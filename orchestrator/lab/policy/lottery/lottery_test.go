package lottery_test

import (
	"strconv"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/lab/policy/lottery"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/policytest"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

func made(t *testing.T, seed int) policy.Policy {
	t.Helper()
	o, err := policy.ParseOptions([]string{"seed=" + strconv.Itoa(seed)})
	if err != nil {
		t.Fatal(err)
	}
	return lottery.New(o)
}

func TestLotteryKeepsTheRules(t *testing.T) {
	t.Parallel()
	policytest.Run(t, func() policy.Policy { return made(t, 7) })
}

// Of two jobs for one device, that of the sweep with three times the weight wins three times as often.
func TestTicketsDecideHowOftenAJobWins(t *testing.T) {
	t.Parallel()
	const draws = 2000
	wins := map[string]int{}
	for seed := range draws {
		s := stagetest.New(stagetest.Nodes("gpu", 1, 1, 1)...)
		light, heavy := s.App("light", "x"), s.App("heavy", "x")
		heavy.Weight = 3 * light.Weight
		s.Job(light, 1, 1, 10)
		s.Job(heavy, 1, 1, 10)
		p := s.Decide(t, made(t, seed))
		if len(p.Grants) != 1 {
			t.Fatalf("seed %d granted %d of the one device", seed, len(p.Grants))
		}
		wins[p.Grants[0].Job.App.ID]++
	}
	if share := float64(wins["heavy"]) / draws; share < 0.71 || share > 0.79 {
		t.Errorf("three of four tickets won %.2f of the draws", share)
	}
}
