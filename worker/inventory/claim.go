package inventory

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/claim"
)

// lookAgain is the time between two attempts to claim devices of other processes.
const lookAgain = time.Second

// Claim claims the machine's devices in the name of the worker's directory, so that no other worker of this machine
// offers them too. The result leaves out devices that other processes hold; taken is called once for each of them. If
// no device is left, Claim waits until one is free, or ctx ends. The caller calls release when the worker is done.
// Declared devices are not claimed, because they need not exist.
func (m Machine) Claim(ctx context.Context, dir string, taken func(*claim.Held)) (_ Machine, release func() error, err error) {
	told := map[string]bool{}
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		kept, claims, err := m.claimOnce(ctx, dir, func(h *claim.Held) {
			if !told[h.What] {
				told[h.What] = true
				taken(h)
			}
		})
		release := func() error {
			var errs []error
			for _, c := range claims {
				errs = append(errs, c.Release())
			}
			return errors.Join(errs...)
		}
		if err != nil {
			return Machine{}, nil, errors.Join(err, release())
		}
		if len(kept) > 0 {
			return m.only(kept), release, nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return Machine{}, nil, ctx.Err()
		}
	}
}

// claimOnce claims all free devices, and returns which devices the worker may offer.
func (m Machine) claimOnce(ctx context.Context, dir string, taken func(*claim.Held)) (kept []int, all []*claim.Claim, err error) {
	for i, name := range m.Names {
		if name == "" {
			kept = append(kept, i)
			continue
		}
		c, err := claim.Take(ctx, name, dir, time.Now())
		if held, ok := errors.AsType[*claim.Held](err); ok {
			taken(held)
			continue
		}
		if err != nil {
			return nil, all, err
		}
		kept, all = append(kept, i), append(all, c)
	}
	return kept, all, nil
}

// only returns the machine with some of its devices, renumbered.
func (m Machine) only(kept []int) Machine {
	if len(kept) == len(m.Devices) {
		return m
	}
	old := m
	m.Devices, m.Links, m.Names = nil, nil, nil
	index := map[int32]int32{}
	for to, from := range kept {
		d := proto.CloneOf(old.Devices[from])
		d.Index = int32(to)
		index[int32(from)] = int32(to)
		m.Devices, m.Names = append(m.Devices, d), append(m.Names, old.Names[from])
	}
	for _, l := range old.Links {
		a, hasA := index[l.GetA()]
		b, hasB := index[l.GetB()]
		if hasA && hasB {
			m.Links = append(m.Links, &outbidv1.DeviceLink{A: a, B: b, Kind: l.GetKind(), Lanes: l.GetLanes()})
		}
	}
	return m
}
