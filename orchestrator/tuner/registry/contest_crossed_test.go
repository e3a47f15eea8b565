package registry_test

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/lab/curvetest"
)

// crossedTasks returns tasks whose curves equal those of other curves until three quarters of training, with values
// worse than any final value, so that earlier ranks say nothing about the end.
func crossedTasks(tasks []curvetest.Task) []curvetest.Task {
	var crossed []curvetest.Task
	for _, task := range tasks {
		if task.Set == "SelfTuned" {
			continue
		}
		c, until := task, task.Steps()*3/4
		c.Set, c.Curves = "Crossed", nil
		least, most := math.Inf(1), math.Inf(-1)
		for _, y := range task.Curves {
			for _, v := range y {
				if !math.IsNaN(v) && !math.IsInf(v, 0) {
					least, most = min(least, v), max(most, v)
				}
			}
		}
		shift := most - least
		if task.Maximise {
			shift = -shift
		}
		whose := rand.New(rand.NewPCG(1, 1)).Perm(len(task.Curves))
		for i, y := range task.Curves {
			y = slices.Clone(y)
			for s, v := range task.Curves[whose[i]][:until] {
				y[s] = v + shift
			}
			c.Curves = append(c.Curves, y)
		}
		crossed = append(crossed, c)
	}
	return crossed
}
