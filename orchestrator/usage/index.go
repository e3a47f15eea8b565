// Package usage accounts for the device time of leases: by tenant, user, device type and label, over any period. It is
// a projection of the ledger, which is read once; later answers read only the batches that were added.
package usage

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// owner is what a sweep's leases are charged to. Sweeps with equal owners share one.
type owner struct {
	Tenant, User string
	Labels       map[string]string
}

// key identifies an owner.
func (o owner) key() string {
	key := fmt.Sprintf("%q %q", o.Tenant, o.User)
	for _, name := range slices.Sorted(maps.Keys(o.Labels)) {
		key += fmt.Sprintf(" %q=%q", name, o.Labels[name])
	}
	return key
}

// span is the time for which a lease held devices of one type, in nanoseconds since 1970.
type span struct {
	Owner, Type, Devices int32
	From, To             int64
}

// index holds the leases of the ledger up to a batch. Its exported fields are saved in a file.
type index struct {
	// Seq and Hash identify the last batch that was added, and Time is its time.
	Seq  uint64
	Hash []byte
	Time int64
	// Owners and Types are lists to which spans refer by position.
	Owners []owner
	Types  []string
	// Sweeps maps a sweep that was not deleted to its owner.
	Sweeps map[string]int32
	// Nodes holds the types of each node's devices, in the order of their indexes.
	Nodes map[string][]int32
	// Running holds the spans of running leases, by ID. Their To is not set.
	Running map[uint64][]span
	// Ended holds the spans of leases that have ended, by their end.
	Ended []span

	ownerAt map[string]int32
	typeAt  map[string]int32
}

func newIndex() *index {
	return &index{
		Sweeps: map[string]int32{}, Nodes: map[string][]int32{}, Running: map[uint64][]span{}, ownerAt: map[string]int32{}, typeAt: map[string]int32{},
	}
}

// add accounts for the events of the batch that follows the last one.
func (x *index) add(b *outbidv1.Batch) error {
	var all outbidv1.Events
	if err := proto.Unmarshal(b.GetEvents(), &all); err != nil {
		return fmt.Errorf("ledger batch %d: %w", b.GetSeq(), err)
	}
	at := b.GetTime().AsTime().UnixNano()
	for _, e := range all.GetEvents() {
		switch e := e.GetKind().(type) {
		case *outbidv1.Event_SweepSubmitted:
			x.Sweeps[e.SweepSubmitted.GetSweep()] = x.ownerOf(e.SweepSubmitted)
		case *outbidv1.Event_SweepDeleted:
			delete(x.Sweeps, e.SweepDeleted.GetSweep())
		case *outbidv1.Event_NodeJoined:
			x.join(e.NodeJoined.GetNode())
		case *outbidv1.Event_LeaseGranted:
			x.grant(e.LeaseGranted, at)
		case *outbidv1.Event_LeaseEnded:
			x.end(e.LeaseEnded.GetLeaseId(), at)
		}
	}
	x.Seq, x.Hash, x.Time = b.GetSeq(), b.GetHash(), at
	return nil
}

// ownerOf returns the position of a new sweep's owner.
func (x *index) ownerOf(e *outbidv1.SweepSubmitted) int32 {
	o := owner{state.TenantOf(e.GetSpec()), e.GetActor(), e.GetSpec().GetLabels()}
	key := o.key()
	i, known := x.ownerAt[key]
	if !known {
		i = int32(len(x.Owners))
		x.Owners, x.ownerAt[key] = append(x.Owners, o), i
	}
	return i
}

func (x *index) typeOf(name string) int32 {
	i, known := x.typeAt[name]
	if !known {
		i = int32(len(x.Types))
		x.Types, x.typeAt[name] = append(x.Types, name), i
	}
	return i
}

func (x *index) join(info *outbidv1.NodeInfo) {
	types := make([]int32, len(info.GetDevices()))
	for i, d := range info.GetDevices() {
		types[i] = x.typeOf(d.GetType())
	}
	x.Nodes[info.GetName()] = types
}

// grant starts the spans of a lease, one for each type of its devices.
func (x *index) grant(e *outbidv1.LeaseGranted, at int64) {
	devices := map[int32]int32{}
	for _, p := range e.GetPlaces() {
		types := x.Nodes[p.GetNode()]
		for _, d := range p.GetDevices() {
			if d >= 0 && int(d) < len(types) {
				devices[types[d]]++
			}
		}
	}
	var spans []span
	for _, kind := range slices.Sorted(maps.Keys(devices)) {
		spans = append(spans, span{Owner: x.Sweeps[e.GetSweep()], Type: kind, Devices: devices[kind], From: at})
	}
	if len(spans) > 0 {
		x.Running[e.GetLeaseId()] = spans
	}
}

func (x *index) end(lease uint64, at int64) {
	for _, s := range x.Running[lease] {
		s.To = at
		x.Ended = append(x.Ended, s)
	}
	delete(x.Running, lease)
}

// between calls f with each span that overlaps a period, cut to the period.
func (x *index) between(since, until int64, f func(span)) {
	cut := func(s span) {
		if s.From, s.To = max(s.From, since), min(s.To, until); s.From < s.To {
			f(s)
		}
	}
	first, _ := slices.BinarySearchFunc(x.Ended, since, func(s span, at int64) int { return int(min(1, max(-1, s.To-at))) })
	for _, s := range x.Ended[first:] {
		cut(s)
	}
	for _, spans := range x.Running {
		for _, s := range spans {
			s.To = until
			cut(s)
		}
	}
}
