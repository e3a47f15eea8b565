// Package compare adds to experiments what only comparisons need: a setting with several values, figures, the time that
// each app takes alone, and the rules of Gavel's simulator.
package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// errNoEnd is the error for an app that does not end alone.
var errNoEnd = errors.New("it does not end alone on its share")

// alone simulates apps alone on their shares. Results are cached, because a share with the same devices gives the same
// result under every policy.
type alone struct {
	engine experiment.Engine
	p      *experiment.Plan
	mu     sync.Mutex
	known  map[shareKey]float64
	jobs   map[string][]trace.Job
}

// shareKey is an app and its share, named by the nodes and their numbers of devices.
type shareKey struct{ app, share string }

// Alone returns a comparison that also simulates every app alone on its share of the cluster.
func Alone(p *experiment.Plan, engine experiment.Engine) experiment.Comparison {
	return newAlone(p, engine).compare
}

func newAlone(p *experiment.Plan, engine experiment.Engine) *alone {
	a := &alone{engine: engine, p: p, known: map[shareKey]float64{}, jobs: map[string][]trace.Job{}}
	for i := range p.Trace.Jobs {
		j := p.Trace.Jobs[i]
		j.Submit = 0
		name := cmp.Or(j.App, j.ID)
		a.jobs[name] = append(a.jobs[name], j)
	}
	return a
}

// compare adds to a result the time that each of its apps takes alone.
func (a *alone) compare(ctx context.Context, r *measure.Result) error {
	seconds := make([]float64, len(r.Series.Fates))
	for i := range seconds {
		f := &r.Series.Fates[i]
		var err error
		if seconds[i], err = a.seconds(ctx, f.App, f.MeanApps); err != nil {
			return fmt.Errorf("app %s alone: %w", f.App, err)
		}
	}
	r.Against(seconds)
	return nil
}

// seconds returns the time that an app takes on a 1/n share of the cluster. A share that is smaller than the app's gang
// counts as the devices of the gang for a part of the time.
func (a *alone) seconds(ctx context.Context, app string, n float64) (float64, error) {
	jobs := a.jobs[app]
	if len(jobs) == 0 {
		return 0, nil
	}
	nodes, part := shareOf(a.p.Nodes, &jobs[0], max(1, n))
	key := shareKey{app, sizesOf(nodes)}
	a.mu.Lock()
	known, ok := a.known[key]
	a.mu.Unlock()
	if ok {
		return known / part, nil
	}
	factories, err := experiment.PolicyFactories(a.p.Registry, []string{"fifo"}, nil, 0, a.p.Workload.Seed, nil)
	if err != nil {
		return 0, err
	}
	r, err := a.engine(ctx, experiment.Request{
		Policy: factories[0], Nodes: nodes, Table: a.p.Table, Seed: a.p.Workload.Seed, RestartDelay: a.p.RestartDelay,
		Slowdown: a.p.Slowdown, Trace: &trace.Trace{Name: app, Jobs: jobs, Apps: a.p.Trace.Apps, Tenants: a.p.Trace.Tenants},
	})
	if err != nil {
		return 0, err
	}
	if len(r.Series.Fates) == 0 {
		return 0, errNoEnd
	}
	a.mu.Lock()
	a.known[key] = r.Series.Fates[0].Shared
	a.mu.Unlock()
	return r.Series.Fates[0].Shared / part, nil
}

// shareOf returns 1/n of the devices of each type that a job accepts, rounded down, on the cluster's machines, the
// largest first, so that gangs are close together if possible. part is below 1 if that is less than the job's gang:
// then the nodes have the devices of the gang, and the app has them for that part of the time.
func shareOf(nodes []cluster.Node, j *trace.Job, n float64) (share []cluster.Node, part float64) {
	all := map[string]int{}
	most := ""
	for i := range nodes {
		for _, d := range nodes[i].Devices {
			if len(j.GPUTypes) == 0 || slices.Contains(j.GPUTypes, d.Type) {
				all[d.Type]++
			}
		}
	}
	of, sum := map[string]int{}, 0
	for kind, devices := range all {
		of[kind] = int(float64(devices)/n + 1e-9)
		sum += of[kind]
		if most == "" || devices > all[most] || devices == all[most] && kind < most {
			most = kind
		}
	}
	part = 1
	if gang := max(1, j.MinGPUs); sum < gang || len(all) > 1 && of[most] < gang {
		gang = min(gang, all[most])
		of = map[string]int{most: gang}
		part = min(1, float64(all[most])/n/float64(max(1, gang)))
	}
	return cut(nodes, of), part
}

// cut takes a number of devices of each type, from the largest machines first.
func cut(nodes []cluster.Node, of map[string]int) []cluster.Node {
	sorted := slices.Clone(nodes)
	slices.SortStableFunc(sorted, func(a, b cluster.Node) int { return cmp.Compare(len(b.Devices), len(a.Devices)) })
	var share []cluster.Node
	for _, node := range sorted {
		var devices []cluster.Device
		for _, d := range node.Devices {
			if of[d.Type] > 0 {
				of[d.Type]--
				d.Index = len(devices)
				devices = append(devices, d)
			}
		}
		if len(devices) > 0 {
			node.Devices, node.Links = devices, nil
			share = append(share, node)
		}
	}
	slices.SortFunc(share, func(a, b cluster.Node) int { return cmp.Compare(a.Name, b.Name) })
	return share
}

// sizesOf names a share by its nodes and their numbers of devices.
func sizesOf(nodes []cluster.Node) string {
	var text strings.Builder
	for i := range nodes {
		fmt.Fprintf(&text, "%s:%d ", nodes[i].Name, len(nodes[i].Devices))
	}
	return text.String()
}
