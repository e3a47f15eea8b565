package gavel

import (
	"math/rand/v2"
	"strings"
	"testing"
)

var chaos *rand.Rand

func TestChaos(t *testing.T) {
	for _, policy := range strings.Fields("max_min_fairness max_min_fairness_perf finish_time_fairness finish_time_fairness_perf max_sum_throughput_perf min_total_duration_perf") {
		for seed := range uint64(6) {
			chaos = rand.New(rand.NewPCG(seed, 1))
			p := &peer{t: t, policy: policy, jobs: readPeer(t, "peer/gavel300_multi_lam900_s0.trace"), workers: []int{12, 12, 12}, rounds: NewRounds(3, 360, 1920), random: NewMersenne(0, 0), shuffle: NewMersenne(5, 0)}
			p.run()
			mean, p99, _ := p.completion()
			t.Logf("%s %.0f %.0f %.0f", policy, mean, p99, p.now)
		}
	}
	chaos = nil
}
