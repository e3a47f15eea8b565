package trace

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// HadarEOptions describe the mixes of the HadarE paper, for clusters of five nodes with one GPU each.
type HadarEOptions struct {
	// Mix is M-1, M-3, M-4, M-5, M-8, M-10 or M-12.
	Mix string
	// Seconds by size of the data set (S, M, L, XL): the run time on the reference GPU. The paper does not give them.
	Seconds map[string]float64
	// Throughputs turn durations into steps for the models they have, on GPUs of type Reference; nil for durations only.
	Throughputs *Throughputs
	Reference   string
}

// HadarEDefaults is a mix with run times under which M-5 takes about the paper's 4,000 s on five nodes.
func HadarEDefaults(mix string, table *Throughputs) HadarEOptions {
	return HadarEOptions{
		Mix:         mix,
		Seconds:     map[string]float64{"S": 400, "M": 800, "L": 1200, "XL": 2000},
		Throughputs: table,
		Reference:   "v100",
	}
}

// hadarETask is a row of the paper's table III. The model is the nearest in Gavel's tables; MiMa's weather model is in none.
type hadarETask struct{ model, size string }

func hadarETasks() map[string]hadarETask {
	return map[string]hadarETask{
		"IC": {"ResNet-18 (batch size 128)", "S"},
		"LM": {"LM (batch size 20)", "L"},
		"LT": {"Transformer (batch size 64)", "L"},
		"RS": {"Recommendation (batch size 2048)", "XL"},
		"MM": {"MiMa", "M"},
	}
}

// hadarEMixes are the tasks of each mix, in the paper's order.
func hadarEMixes() map[string][]string {
	mixes := map[string][]string{
		"M-1": {"MM"},
		"M-3": {"LT", "MM", "MM"},
		"M-4": {"IC", "LM", "LT", "MM"},
	}
	for name, weather := range map[string]int{"M-5": 1, "M-8": 4, "M-10": 6, "M-12": 8} {
		mix := []string{"IC", "LM", "LT", "RS"}
		for range weather {
			mix = append(mix, "MM")
		}
		mixes[name] = mix
	}
	return mixes
}

// MakeHadarE makes a mix; all jobs are there at the start and nothing is random. The size is kept as the status.
func MakeHadarE(o HadarEOptions) (*Trace, error) {
	mix, ok := hadarEMixes()[o.Mix]
	if !ok {
		names := slices.SortedFunc(maps.Keys(hadarEMixes()), func(a, b string) int {
			return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
		})
		return nil, fmt.Errorf("make a hadare mix: %q: want one of %s", o.Mix, strings.Join(names, ", "))
	}
	out := &Trace{Name: "hadare-" + strings.ToLower(o.Mix), Source: "mix " + o.Mix + " of the HadarE paper"}
	for i, name := range mix {
		task := hadarETasks()[name]
		seconds := o.Seconds[task.size]
		if err := positive("make a hadare mix", setting{"seconds of size " + task.size, seconds}); err != nil {
			return nil, err
		}
		job := Job{
			ID: strings.ToLower(name) + "-" + strconv.Itoa(i), MinGPUs: 1, MaxGPUs: 1, Share: 1,
			Duration: seconds, MeasuredOn: o.Reference, Model: task.model, Weight: 1, Status: task.size,
		}
		if o.Throughputs != nil && name != "MM" {
			speed, err := o.Throughputs.Isolated(task.model, 1, o.Reference)
			if err != nil {
				return nil, fmt.Errorf("make a hadare mix: %w", err)
			}
			job.TotalSteps = max(1, int64(math.Round(seconds*speed)))
		}
		out.Jobs = append(out.Jobs, job)
	}
	return out, nil
}

// cutModel parts "LM (batch size 5)" into family and batch size.
func cutModel(model string) (family string, batch int, ok bool) {
	family, rest, found := strings.Cut(model, " (batch size ")
	if !found {
		return model, 0, false
	}
	batch, err := strconv.Atoi(strings.TrimSuffix(rest, ")"))
	return family, batch, err == nil
}
