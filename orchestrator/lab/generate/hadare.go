package generate

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// HadarEOptions describe the mixes of the HadarE paper, for clusters of five nodes with one GPU each.
type HadarEOptions struct {
	// Mix is M-1, M-3, M-4, M-5, M-8, M-10 or M-12.
	Mix string
	// Seconds is the run time on the reference GPU by size of the data set (S, M, L, XL). The paper does not give it.
	Seconds map[string]float64
	// Throughputs convert durations into steps on GPUs of type Reference, and give the speeds of the models and types
	// that they have. Other speeds, or all if it is nil, follow from data sheets.
	Throughputs *trace.Throughputs
	Reference   string
	// Forks is the number of processes that may train a job at once.
	Forks string
	// Vary draws by Seed each job's run time, from 0.75 to 1.33 times that of its size, log-uniformly, and the
	// influence of a GPU's arithmetic and memory on its speed. Otherwise nothing is random, and both have the same
	// influence.
	Vary bool
	Seed uint64
}

// HadarEDefaults returns a mix with run times for which M-5 takes about the paper's 4,000 s on five nodes.
func HadarEDefaults(mix string, table *trace.Throughputs) HadarEOptions {
	return HadarEOptions{
		Mix:         mix,
		Seconds:     map[string]float64{"S": 400, "M": 800, "L": 1200, "XL": 2000},
		Throughputs: table,
		Reference:   "v100",
		Forks:       "auto",
	}
}

// hadarEGPU has a GPU's data sheet values: single-precision teraflops, and memory bandwidth in GB/s.
type hadarEGPU struct{ arithmetic, memory float64 }

// hadarEGPUs returns the GPUs of the paper's two clusters, where a K80 is one of its two halves, and of the other
// clusters here.
func hadarEGPUs() map[string]hadarEGPU {
	return map[string]hadarEGPU{
		"v100": {15.7, 900}, "p100": {10.6, 732}, "k80": {4.4, 240}, "t4": {8.1, 320}, "titan-rtx": {16.3, 672}, "t400": {1.1, 80},
		"rtx-3090": {35.6, 936}, "rtx-a2000": {8, 288},
	}
}

// speeds returns a model's steps per second by type, given that on the reference: measured if the table has it,
// otherwise the weighted geometric mean of the ratios in the data sheets.
func (o *HadarEOptions) speeds(model string, reference, weight float64) map[string]float64 {
	rates, base := map[string]float64{}, hadarEGPUs()[o.Reference]
	for kind, g := range hadarEGPUs() {
		rates[kind] = reference * math.Pow(g.arithmetic/base.arithmetic, weight) * math.Pow(g.memory/base.memory, 1-weight)
		if o.Throughputs == nil {
			continue
		}
		if measured, err := o.Throughputs.Isolated(model, 1, kind); err == nil {
			rates[kind] = measured
		}
	}
	return rates
}

// hadarEUnmeasured is the steps per second on the reference of a model that no table has.
const hadarEUnmeasured = 10

// hadarETask is a row of the paper's table III. The model is the nearest in Gavel's tables, which lack MiMa's weather
// model.
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

// hadarEMixes returns the tasks of each mix, in the paper's order.
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

// MakeHadarE generates a mix. All jobs are present at the start. The size becomes the status.
func MakeHadarE(o HadarEOptions) (*trace.Trace, error) {
	mix, ok := hadarEMixes()[o.Mix]
	if !ok {
		names := slices.SortedFunc(maps.Keys(hadarEMixes()), func(a, b string) int {
			return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
		})
		return nil, fmt.Errorf("make a hadare mix: %q: want one of %s", o.Mix, strings.Join(names, ", "))
	}
	if _, known := hadarEGPUs()[o.Reference]; !known {
		return nil, fmt.Errorf("make a hadare mix: reference %q: want one of %s", o.Reference, strings.Join(slices.Sorted(maps.Keys(hadarEGPUs())), ", "))
	}
	d := newDraw(o.Seed, "hadare")
	out := &trace.Trace{Name: "hadare-" + strings.ToLower(o.Mix), Source: "mix " + o.Mix + " of the HadarE paper"}
	for i, name := range mix {
		task := hadarETasks()[name]
		seconds, weight := o.Seconds[task.size], .5
		if o.Vary {
			seconds *= math.Pow(.75, d.between(-1, 1))
			weight = d.between(.3, .7)
		}
		if err := positive("make a hadare mix", setting{"seconds of size " + task.size, seconds}); err != nil {
			return nil, err
		}
		job := trace.Job{
			ID: strings.ToLower(name) + "-" + strconv.Itoa(i), MinGPUs: 1, MaxGPUs: 1, Share: 1,
			Duration: seconds, MeasuredOn: o.Reference, Model: task.model, Weight: 1, Status: task.size,
			Forks: o.Forks,
		}
		speed := float64(hadarEUnmeasured)
		if o.Throughputs != nil && name != "MM" {
			var err error
			if speed, err = o.Throughputs.Isolated(task.model, 1, o.Reference); err != nil {
				return nil, fmt.Errorf("make a hadare mix: %w", err)
			}
		}
		job.TotalSteps, job.Rates = max(1, int64(math.Round(seconds*speed))), o.speeds(task.model, speed, weight)
		out.Jobs = append(out.Jobs, job)
	}
	return out, nil
}

// cutModel splits "LM (batch size 5)" into family and batch size.
func cutModel(model string) (family string, batch int, ok bool) {
	family, rest, found := strings.Cut(model, " (batch size ")
	if !found {
		return model, 0, false
	}
	batch, err := strconv.Atoi(strings.TrimSuffix(rest, ")"))
	return family, batch, err == nil
}
