package nodes

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// portBase is the first of portCount ports for the rendezvous of gangs; torchrun's default is 29500. controlBase is the
// first of as many ports where rank 0 of a function listens for the other ranks. A gang whose ports are in use on the
// host of rank 0 may choose later ones, up to portsTried in all.
const (
	portBase    = 29500
	portCount   = 2000
	portsTried  = 8
	controlBase = portBase - portCount
)

// gang returns which of the trial's processes a place runs, or nil if there is only one process.
func (ns *Nodes) gang(s *state.Sweep, t *state.Trial, l *state.Lease, place int) *outbidv1.Gang {
	perDevice := spec.PerDevice(s.Spec)
	if !l.Gang() && !perDevice {
		return nil
	}
	port := ns.portOffset(l)
	g := &outbidv1.Gang{
		Place: int32(place), Places: int32(len(l.Places)), PerDevice: perDevice,
		Address: ns.st.Nodes[l.Rank0()].Info.GetHostname(), Port: portBase + port,
		ControlPort: controlBase + port, Restarts: t.Restarts, Secret: ns.gangSecret(s, t, l),
	}
	g.FirstRank, _ = l.Ranks(perDevice, place)
	g.Ranks = worldSize(l, perDevice)
	return g
}

// worldSize returns the number of processes of a lease.
func worldSize(l *state.Lease, perDevice bool) int32 {
	before, last := l.Ranks(perDevice, len(l.Places)-1)
	return before + last
}

// portOffset returns which ports a lease's gang should use. Servers start at different ones, because workers of several
// servers may run on one host.
func (ns *Nodes) portOffset(l *state.Lease) int32 {
	var first uint64
	if ns.set.Sign != nil {
		sum := sha256.Sum256(ns.set.Sign("ports of gangs"))
		first = binary.BigEndian.Uint64(sum[:])
	}
	const starts = portCount - portsTried + 1
	return int32((first%starts + l.ID%starts) % starts)
}

// gangSecret returns a text that only this server and the workers of a lease can know. It is the same for all of them, also
// after a restart of the server, or "" without a key.
func (ns *Nodes) gangSecret(s *state.Sweep, t *state.Trial, l *state.Lease) string {
	if s.Spec.GetFunction() == nil || ns.set.Sign == nil {
		return ""
	}
	sum := sha256.Sum256(ns.set.Sign(fmt.Sprintf("gang of %s/%d@%d", s.ID, t.Number, l.ID)))
	return hex.EncodeToString(sum[:])
}
