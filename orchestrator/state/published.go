package state

import (
	"maps"
	"slices"
	"time"

	"github.com/benbjohnson/immutable"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Published is an immutable state after a batch of the ledger, for readers. It can be read without a lock while the
// state changes. The next one shares the unchanged parts.
type Published struct {
	// Seq and Time are those of the last batch.
	Seq  uint64
	Time time.Time
	// SweepIDs in order of submission.
	SweepIDs []string
	// Inventory holds the nodes that are up or draining. It is the same pointer while these are unchanged.
	Inventory *Inventory

	sweeps  *immutable.Map[string, *PublishedSweep]
	nodes   *immutable.SortedMap[string, *PublishedNode]
	deleted map[string]Deleted
	held    int
	sharing
	tenancy
	counting
	pricing
	tariff
}

// Inventory is a cluster's nodes as policies see them, by index and by name.
type Inventory struct {
	Nodes []cluster.Node
	Index map[string]int
}

// PublishedNode is a node as users see it.
type PublishedNode struct {
	View *outbidv1.Node
	// Up reports whether the node is up or draining.
	Up bool
}

// Publish copies the whole state.
func (st *State) Publish() *Published {
	p := &Published{
		sweeps: immutable.NewMap[string, *PublishedSweep](nil), nodes: immutable.NewSortedMap[string, *PublishedNode](nil),
	}
	sweeps, nodes := map[string]bool{}, map[string]bool{}
	for id := range st.Sweeps {
		sweeps[id] = true
	}
	for name := range st.Nodes {
		nodes[name] = true
	}
	next, _ := p.next(st, sweeps, nodes)
	next.SweepIDs, next.deleted, next.Inventory = slices.Clone(st.SweepIDs), maps.Clone(st.deleted), st.inventory()
	return next
}

// After returns the published state after changes, once their events are in the ledger. The caller must call tell
// after storing the result: it wakes readers that wait for a change.
func (p *Published) After(st *State, changes []Change) (next *Published, tell func()) {
	sweeps, nodes := map[string]bool{}, map[string]bool{}
	list, inventory := false, false
	for i := range changes {
		c := &changes[i]
		if c.Sweep != nil {
			sweeps[c.Sweep.ID] = true
			list = list || c.SweepBegan() || c.SweepGone()
		}
		if c.NodeTo() != nodeNone {
			nodes[c.Node.Info.GetName()], inventory = true, true
		}
	}
	next, tell = p.next(st, sweeps, nodes)
	next.SweepIDs, next.deleted, next.Inventory = p.SweepIDs, p.deleted, p.Inventory
	if list {
		next.SweepIDs, next.deleted = slices.Clone(st.SweepIDs), maps.Clone(st.deleted)
	}
	if inventory {
		next.Inventory = st.inventory()
	}
	return next, tell
}

// next copies the given sweeps and nodes, and the nodes on which trials of these sweeps hold or held devices.
func (p *Published) next(st *State, sweeps, nodes map[string]bool) (*Published, func()) {
	next := &Published{
		Seq: st.Seq, Time: st.Time, sharing: st.sharing, tenancy: st.tenancy, counting: st.counting, pricing: st.pricing,
		tariff: st.tariff,
		sweeps: p.sweeps, nodes: p.nodes, held: p.held,
	}
	var stale []chan struct{}
	for id := range sweeps {
		old, known := p.sweeps.Get(id)
		if known {
			stale = append(stale, old.next)
		}
		if s := st.Sweeps[id]; s != nil {
			next.sweeps = next.sweeps.Set(id, s.publish(old, nodes))
		} else if known {
			next.sweeps = next.sweeps.Delete(id)
		}
	}
	for name := range nodes {
		n := st.Nodes[name]
		if n == nil {
			continue
		}
		if old, known := next.nodes.Get(name); known {
			next.held -= old.held()
		}
		now := &PublishedNode{n.NodeView(), n.Up()}
		next.nodes = next.nodes.Set(name, now)
		next.held += now.held()
	}
	return next, func() {
		for _, ch := range stale {
			close(ch)
		}
	}
}

// Sweep returns a sweep by ID. The error is a *DeletedError if it was deleted.
func (p *Published) Sweep(id string) (*PublishedSweep, error) {
	if s, ok := p.sweeps.Get(id); ok {
		return s, nil
	}
	if d, ok := p.deleted[id]; ok {
		return nil, &DeletedError{d}
	}
	return nil, notFound("sweep", id)
}

// Deleted lists the sweeps that were deleted, by ID.
func (p *Published) Deleted() []Deleted { return sortedDeleted(p.deleted) }

// Nodes calls f with every node, by name.
func (p *Published) Nodes(f func(name string, n *PublishedNode)) {
	for i := p.nodes.Iterator(); !i.Done(); {
		name, n, _ := i.Next()
		f(name, n)
	}
}

// Held returns how many devices trials hold on nodes that are up or draining.
func (p *Published) Held() int { return p.held }

func (n *PublishedNode) held() int {
	if !n.Up {
		return 0
	}
	return len(n.View.GetUses())
}
