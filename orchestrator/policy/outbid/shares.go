package outbid

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/astraea/accounts"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis"
)

// books holds the tenants' accounts as of the last decision.
type books struct {
	At      time.Time
	Tenants map[string]*accounts.Account
	// Sweeps holds the accounts of the sweeps while only one tenant has any: they share as tenants do.
	Sweeps map[string]*accounts.Account `json:",omitempty"`
}

func newBooks() books { return books{Tenants: map[string]*accounts.Account{}} }

// update updates the accounts: the time that has passed, the tenants, and their demands. A configured tenant has an
// account before it has trials, so that it lends its share from the beginning.
func (b *books) update(v *policy.View, set *settings) {
	seconds, horizon := 0.0, set.horizon
	if !b.At.IsZero() {
		seconds = max(0, v.Now.Sub(b.At).Seconds())
	}
	b.At = v.Now
	for _, all := range []map[string]*accounts.Account{b.Tenants, b.Sweeps} {
		for _, a := range all {
			a.Advance(seconds, false, horizon)
			a.Held, a.Demand, a.Active = 0, 0, 0
		}
	}
	for i := range v.Tenants {
		b.account(v, v.Tenants[i].Name)
	}
	for _, app := range v.Apps {
		demand(b.account(v, app.Tenant), app)
	}
	setQuotas(b.Tenants, devicesOf(v))
	b.updateSweeps(v, set)
}

// updateSweeps updates the accounts of the sweeps. They exist while only one tenant has sweeps.
func (b *books) updateSweeps(v *policy.View, set *settings) {
	if !set.BySweep || len(v.Apps) == 0 || slices.ContainsFunc(v.Apps, func(a *policy.App) bool { return a.Tenant != v.Apps[0].Tenant }) {
		b.Sweeps = nil
		return
	}
	sweeps := make(map[string]*accounts.Account, len(v.Apps))
	for _, app := range v.Apps {
		a := b.Sweeps[app.ID]
		if a == nil {
			a = &accounts.Account{}
		}
		a.Weight = v.ShareOf(app)
		demand(a, app)
		sweeps[app.ID] = a
	}
	b.Sweeps = sweeps
	setQuotas(b.Sweeps, devicesOf(v))
}

// demand adds what a sweep's trials ask for to an account.
func demand(a *accounts.Account, app *policy.App) {
	for _, j := range app.Jobs {
		if j.Running() || j.Waiting() || j.Consolidating && !app.Paused {
			a.Active++
			a.Demand += float64(max(1, j.Demand.Min, j.Demand.Max))
		}
	}
}

// setQuotas divides devices among accounts by weight.
func setQuotas(all map[string]*accounts.Account, devices int) {
	accounts.Quotas(devices, func(yield func(*accounts.Account) bool) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if !yield(all[name]) {
				return
			}
		}
	})
}

// account returns a tenant's account with its current weight, and creates it if necessary.
func (b *books) account(v *policy.View, tenant string) *accounts.Account {
	a := b.Tenants[tenant]
	if a == nil {
		a = &accounts.Account{}
		b.Tenants[tenant] = a
	}
	a.Weight = v.TenantWeight(tenant, nil)
	return a
}

// recordHoldings records what tenants hold from now on. Devices of trials that must leave count until they are
// released.
func (b *books) recordHoldings(v *policy.View, plan policy.Plan) {
	for _, app := range v.Apps {
		for _, j := range app.Jobs {
			b.hold(app, j.Held().Size())
		}
	}
	for i := range plan.Grants {
		g := &plan.Grants[i]
		b.hold(g.Job.App, g.Gang.Size())
	}
}

func (b *books) hold(app *policy.App, devices int) {
	b.Tenants[app.Tenant].Held += float64(devices)
	if a := b.Sweeps[app.ID]; a != nil {
		a.Held += float64(devices)
	}
}

// shared lists those that share the devices, the one that has had the least of its share first: the tenants that have
// sweeps now, or the sweeps if one tenant has them all.
type shared struct {
	// kind is what they are: tenant or sweep.
	kind   string
	all    []*sharer
	number map[string]int
	nameOf func(*policy.App) string
	// floor is a fraction of each one's part of all devices by weight, where weights is the sum over all.
	floor, devices, weights float64
	// lease is the length of a lease in seconds.
	lease float64
	// askAll means that all sweeps of a tenant are asked.
	askAll bool
}

type sharer struct {
	*accounts.Account

	name string
	rho  float64
}

// share orders those that ask for or hold something. A refused sweep has no part.
func (b *books) share(v *policy.View, set *settings, lease time.Duration, refused admissions) *shared {
	s := &shared{
		kind: "tenant", nameOf: func(a *policy.App) string { return a.Tenant },
		number: map[string]int{}, floor: set.floor, lease: lease.Seconds(), askAll: set.AskAll,
	}
	if !set.ByTenant {
		return s
	}
	kept := b.Tenants
	if b.Sweeps != nil {
		kept, s.kind, s.nameOf = b.Sweeps, "sweep", func(a *policy.App) string { return a.ID }
	}
	for _, app := range v.Apps {
		name := s.nameOf(app)
		if _, there := s.number[name]; !there {
			s.number[name] = 0
			a := kept[name]
			if s.kind == "sweep" && refused[name] != "" {
				a.Demand = 0
			}
			s.all = append(s.all, &sharer{Account: a, name: name, rho: a.Rho(0)})
			s.weights += a.Weight
		}
	}
	s.devices = float64(devicesOf(v))
	slices.SortStableFunc(s.all, func(x, y *sharer) int { return cmp.Compare(x.rho, y.rho) })
	for i, t := range s.all {
		s.number[t.name] = i
	}
	return s
}

// division makes tenants or sweeps bid within their parts, or returns nil for one.
func (s *shared) division() *themis.Division {
	if len(s.all) <= 1 {
		return nil
	}
	return &themis.Division{Groups: len(s.all), Of: func(a *policy.App) int { return s.number[s.nameOf(a)] }, All: s.askAll, Parts: s.parts}
}

// parts divides the offered devices one by one: each goes to the one that will have had the least of its share at the
// end of a lease, among those that ask for more; those below their floor come first.
func (s *shared) parts(offered int, keeps []int) []int {
	parts := make([]int, len(s.all))
	asking := make(queue, 0, len(s.all))
	for i, t := range s.all {
		if float64(keeps[i]) < t.Demand {
			asking = append(asking, s.turn(i, keeps[i]))
		}
	}
	heap.Init(&asking)
	for range offered {
		if len(asking) == 0 {
			break
		}
		i := asking[0].index
		parts[i]++
		if has := keeps[i] + parts[i]; float64(has) < s.all[i].Demand {
			asking[0] = s.turn(i, has)
			heap.Fix(&asking, 0)
		} else {
			heap.Pop(&asking)
		}
	}
	return parts
}

// turn returns the place in the queue of tenant or sweep i, which has a number of devices and asks for another.
func (s *shared) turn(i, has int) turn {
	t := s.all[i]
	more := float64(has) + 1
	return turn{index: i, below: more <= s.floor*s.devices*t.Weight/s.weights, rho: t.After(s.lease, more)}
}

// turn is the urgency with which a tenant or sweep asks for another device. below reports that it is below its floor even
// with that device; rho is the part of its share that it will have had by the end of a lease.
type turn struct {
	index int
	below bool
	rho   float64
}

// queue is a heap with the most urgent first, and the earlier one of two equals.
type queue []turn

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool {
	if q[i].below != q[j].below {
		return q[i].below
	}
	return cmp.Or(cmp.Compare(q[i].rho, q[j].rho), cmp.Compare(q[i].index, q[j].index)) < 0
}

func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

func (q *queue) Push(x any) { *q = append(*q, x.(turn)) } //nolint:forcetypeassert // only turns are pushed

func (q *queue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	*q = (*q)[:last]
	return t
}

// explain adds to the plan's reasons how much of its share each tenant has had.
func (s *shared) explain(plan *policy.Plan) {
	if len(s.all) <= 1 {
		return
	}
	for i := range plan.Grants {
		g := &plan.Grants[i]
		t := s.all[s.number[s.nameOf(g.Job.App)]]
		g.Reason += fmt.Sprintf("; %s %s has had %.3g of its share", s.kind, t.name, t.rho)
	}
	if plan.Reason == "" {
		return
	}
	const most = 8
	var texts []string
	for _, t := range s.all[:min(most, len(s.all))] {
		texts = append(texts, fmt.Sprintf("%s %.3g", t.name, t.rho))
	}
	plan.Reason += "; of their shares " + s.kind + "s have had: " + strings.Join(texts, ", ")
	if n := len(s.all) - most; n > 0 {
		plan.Reason += fmt.Sprintf(", and %d others more", n)
	}
}

// devicesByWeight returns how many devices each tenant has by weight among those that have sweeps now.
func devicesByWeight(v *policy.View) map[string]float64 {
	parts, weights, devices := map[string]float64{}, 0.0, float64(devicesOf(v))
	for _, a := range v.Apps {
		if _, there := parts[a.Tenant]; !there {
			parts[a.Tenant] = v.TenantWeight(a.Tenant, nil)
			weights += parts[a.Tenant]
		}
	}
	for name := range parts {
		parts[name] *= devices / weights
	}
	return parts
}

// devicesOf counts the devices of all nodes.
func devicesOf(v *policy.View) int {
	n := 0
	for i := range v.Nodes {
		n += len(v.Nodes[i].Devices)
	}
	return n
}
