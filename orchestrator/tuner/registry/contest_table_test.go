package registry_test

import (
	"math"
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/lab/curvetest"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// tableSpace returns the search space of a task's table and a function that picks the row for a configuration: the
// nearest row of the same kind, measured in fractions of the ranges, or a random one of equally near rows. If blind is
// set, the space has a row number as its only parameter.
func tableSpace(task *curvetest.Task, blind bool, seed uint64) (map[string]*outbidv1.Parameter, func(tuner.Config) int) {
	if blind {
		rows := &outbidv1.IntRange{High: int64(len(task.Curves) - 1)}
		return map[string]*outbidv1.Parameter{"row": {Kind: &outbidv1.Parameter_Int{Int: rows}}}, func(c tuner.Config) int {
			return int(c["row"].(int64))
		}
	}
	table := newTable(task)
	rng := rand.New(rand.NewPCG(seed, 0x74696573))
	return table.space, func(c tuner.Config) int {
		near := table.nearest(c)
		row := near[rng.IntN(len(near))]
		table.used[row] = true
		return row
	}
}

// A table maps a task's rows to the unit cube.
type table struct {
	space map[string]*outbidv1.Parameter
	names []string
	at    []func(float64) float64
	units [][]float64
	kinds []string
	// used are the rows already picked: no row is picked twice until all of its kind are used.
	used map[int]bool
}

func newTable(task *curvetest.Task) *table {
	b := &table{used: map[int]bool{}, space: map[string]*outbidv1.Parameter{}, kinds: task.Kinds, units: make([][]float64, len(task.Rows))}
	for j, name := range task.Parameters {
		low, high := math.Inf(1), math.Inf(-1)
		for _, r := range task.Rows {
			low, high = min(low, r[j]), max(high, r[j])
		}
		if low == high {
			continue
		}
		log := low > 0 && high/low > 50
		b.names = append(b.names, name)
		b.space[name] = &outbidv1.Parameter{Kind: &outbidv1.Parameter_Float{Float: &outbidv1.FloatRange{Low: low, High: high, Log: log}}}
		b.at = append(b.at, func(x float64) float64 {
			if log {
				return math.Log(x/low) / math.Log(high/low)
			}
			return (x - low) / (high - low)
		})
		for i, r := range task.Rows {
			b.units[i] = append(b.units[i], b.at[len(b.at)-1](r[j]))
		}
	}
	if kinds := slices.Compact(slices.Sorted(slices.Values(task.Kinds))); len(kinds) > 1 {
		choice := &outbidv1.Parameter_Choice{Choice: &outbidv1.Choice{}}
		for _, k := range kinds {
			choice.Choice.Values = append(choice.Choice.Values, structpb.NewStringValue(k))
		}
		b.space["kind"] = &outbidv1.Parameter{Kind: choice}
	}
	return b
}

// nearest returns the rows nearest to a configuration.
func (b *table) nearest(c tuner.Config) []int {
	u := make([]float64, len(b.names))
	for j, name := range b.names {
		u[j] = b.at[j](c[name].(float64))
	}
	kind, _ := c["kind"].(string)
	var near []int
	least := math.Inf(1)
	for i, row := range b.units {
		if b.kinds[i] != kind || b.used[i] {
			continue
		}
		sum := 0.0
		for j, v := range row {
			sum += (v - u[j]) * (v - u[j])
		}
		if sum < least {
			near, least = near[:0], sum
		}
		if sum == least {
			near = append(near, i)
		}
	}
	if len(near) == 0 {
		for i := range b.used {
			if b.kinds[i] == kind {
				delete(b.used, i)
			}
		}
		return b.nearest(c)
	}
	return near
}
