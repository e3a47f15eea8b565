package control

import (
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// archived is the tuner of a sweep that has ended. It continues from its snapshot if the sweep is extended.
type archived struct {
	snapshot []byte
	outlook  tuner.Outlook
}

// open starts a sweep's tuner, or restores it from a snapshot. A tuner that does not start fails its sweep in the
// next step.
func (c *Core) open(id string, spec *outbidv1.SweepSpec, snapshot []byte) {
	t, err := c.newTuner(spec, snapshot)
	if err != nil {
		c.unopened[id] = err
		return
	}
	c.tuners[id] = t
	c.noteMayCreate(c.st.Sweeps[id])
}

// failUnopened ends the sweeps whose tuner did not start.
func (c *Core) failUnopened() {
	for _, id := range sortedKeys(c.unopened) {
		err := c.unopened[id]
		delete(c.unopened, id)
		c.tunerFailed(c.st.Sweeps[id], err)
	}
}

// archive replaces the tuner of a sweep that has ended with its snapshot.
func (c *Core) archive(s *state.Sweep) {
	t := c.tuners[s.ID]
	if t == nil {
		return
	}
	delete(c.tuners, s.ID)
	delete(c.mayCreate, s.ID)
	if data, err := t.Snapshot(); err == nil {
		c.archived[s.ID] = archived{data, t.Outlook()}
	}
	c.out.Retire = append(c.out.Retire, s.ID)
}

// wake restores the tuner of a sweep that is to be extended or resumed; what is the participle for errors.
func (c *Core) wake(s *state.Sweep, what string) error {
	if c.tuners[s.ID] != nil {
		return nil
	}
	r, ok := c.archived[s.ID]
	if !ok {
		return conflict(s, what, "its tuner failed")
	}
	t, err := c.newTuner(s.Spec, r.snapshot)
	if err != nil {
		return fmt.Errorf("%w: tuner: %w", state.ErrConflict, err)
	}
	c.tuners[s.ID], c.asking[s.ID] = t, true
	if s.Spec.GetExternal() == nil {
		c.mayCreate[s.ID] = true
	}
	delete(c.archived, s.ID)
	return nil
}

// outlook returns the total work that a sweep's tuner expects, or false if that is not known.
func (c *Core) outlook(id string) (tuner.Outlook, bool) {
	if t := c.tuners[id]; t != nil {
		return t.Outlook(), true
	}
	r, ok := c.archived[id]
	return r.outlook, ok
}

// snapshotTuner adds a sweep's tuner to its record.
func (c *Core) snapshotTuner(r *outbidv1.SweepRecord) error {
	t := c.tuners[r.GetId()]
	if t == nil {
		if put, ok := c.archived[r.GetId()]; ok {
			r.Tuner, r.Outlook = put.snapshot, put.outlook.Message()
		}
		return nil
	}
	data, err := t.Snapshot()
	if err != nil {
		return fmt.Errorf("snapshot of the tuner of sweep %s: %w", r.GetId(), err)
	}
	r.Tuner = data
	return nil
}

// loadTuner is the counterpart of snapshotTuner.
func (c *Core) loadTuner(r *outbidv1.SweepRecord) error {
	snapshot := r.GetTuner()
	if snapshot == nil {
		return nil
	}
	if c.st.Sweeps[r.GetId()].Done() {
		c.archived[r.GetId()] = archived{snapshot, tuner.OutlookOf(r.GetOutlook())}
		return nil
	}
	c.asking[r.GetId()] = true
	c.open(r.GetId(), r.GetSpec(), snapshot)
	return nil
}
