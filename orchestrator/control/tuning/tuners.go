package tuning

import (
	"fmt"
	"maps"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/remote"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// archived is the tuner of a sweep that has ended. It continues from its snapshot if the sweep is extended.
type archived struct {
	snapshot []byte
	outlook  tuner.Outlook
}

// open starts a sweep's tuner, or restores it from a snapshot. A tuner that does not start fails its sweep in the
// next step.
func (tu *Tuning) open(id string, settings tuner.Settings, snapshot []byte) {
	t, err := tu.newTuner(settings, snapshot)
	if err != nil {
		tu.unopened[id] = err
		return
	}
	tu.tuners[id] = t
	tu.noteMayCreate(tu.st.Sweeps[id])
}

// settingsOf returns the settings of a sweep's tuner.
func settingsOf(s *state.Sweep) tuner.Settings { return tuner.Settings{Spec: s.Spec, Memory: s.Memory} }

// newTuner makes a tuner from its sweep's settings, and from a snapshot unless that is nil. It does not start the
// process of a remote tuner; its client does.
func (tu *Tuning) newTuner(settings tuner.Settings, snapshot []byte) (tuner.Tuner, error) {
	switch {
	case !IsRemote(settings.Spec):
		return tu.make(settings, snapshot)
	case snapshot == nil:
		return remote.New(settings.Spec, nil), nil
	default:
		return remote.Restore(snapshot)
	}
}

// FailUnopened ends the sweeps whose tuner did not start.
func (tu *Tuning) FailUnopened() {
	for _, id := range slices.Sorted(maps.Keys(tu.unopened)) {
		err := tu.unopened[id]
		delete(tu.unopened, id)
		tu.tunerFailed(tu.st.Sweeps[id], err)
	}
}

// archive replaces the tuner of a sweep that has ended with its snapshot.
func (tu *Tuning) archive(s *state.Sweep) {
	t := tu.tuners[s.ID]
	if t == nil {
		return
	}
	delete(tu.tuners, s.ID)
	delete(tu.mayCreate, s.ID)
	if data, err := t.Snapshot(); err == nil {
		tu.archived[s.ID] = archived{data, t.Outlook()}
	}
	tu.Retire(s.ID)
}

// Wake restores the tuner of a sweep that is to be extended or resumed; what is the participle for errors.
func (tu *Tuning) Wake(s *state.Sweep, what string) error {
	if tu.tuners[s.ID] != nil {
		return nil
	}
	r, ok := tu.archived[s.ID]
	if !ok {
		return s.Conflict(what, "its tuner failed")
	}
	t, err := tu.newTuner(settingsOf(s), r.snapshot)
	if err != nil {
		return fmt.Errorf("%w: tuner: %w", state.ErrConflict, err)
	}
	tu.tuners[s.ID], tu.asking[s.ID] = t, true
	if s.Spec.GetExternal() == nil {
		tu.mayCreate[s.ID] = true
	}
	delete(tu.archived, s.ID)
	return nil
}

// Reopen restores the tuner of a sweep that continues. A sweep whose tuner does not start fails in the next step.
func (tu *Tuning) Reopen(s *state.Sweep) {
	if err := tu.Wake(s, "continued"); err != nil {
		tu.unopened[s.ID] = err
	}
}

// Outlook returns the total work that a sweep's tuner expects, or false if that is not known.
func (tu *Tuning) Outlook(id string) (tuner.Outlook, bool) {
	if t := tu.tuners[id]; t != nil {
		return t.Outlook(), true
	}
	r, ok := tu.archived[id]
	return r.outlook, ok
}

// Snapshot adds a sweep's tuner to its record.
func (tu *Tuning) Snapshot(r *outbidv1.SweepRecord) error {
	t := tu.tuners[r.GetId()]
	if t == nil {
		if put, ok := tu.archived[r.GetId()]; ok {
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

// Load is the counterpart of Snapshot.
func (tu *Tuning) Load(r *outbidv1.SweepRecord) error {
	snapshot := r.GetTuner()
	if snapshot == nil {
		return nil
	}
	if tu.st.Sweeps[r.GetId()].Done() {
		tu.archived[r.GetId()] = archived{snapshot, tuner.OutlookOf(r.GetOutlook())}
		return nil
	}
	tu.asking[r.GetId()] = true
	tu.open(r.GetId(), settingsOf(tu.st.Sweeps[r.GetId()]), snapshot)
	return nil
}

// Prepare makes the tuner of a sweep that is about to be submitted.
func (tu *Tuning) Prepare(id string, settings tuner.Settings) error {
	t, err := tu.make(settings, nil)
	if err == nil {
		tu.tuners[id] = t
	}
	return err
}

// forget drops everything about a sweep that was deleted.
func (tu *Tuning) forget(id string) {
	delete(tu.tuners, id)
	delete(tu.archived, id)
	delete(tu.unopened, id)
	delete(tu.mayCreate, id)
	delete(tu.asking, id)
	tu.Retire(id)
}

// Retire records that the process of a sweep's remote tuner is no longer needed.
func (tu *Tuning) Retire(id string) { tu.retired = append(tu.retired, id) }

// TakeRetired returns the sweeps that were retired since the last call.
func (tu *Tuning) TakeRetired() []string {
	ids := tu.retired
	tu.retired = nil
	return ids
}

// dropTuner removes a tuner that failed.
func (tu *Tuning) dropTuner(s *state.Sweep) {
	delete(tu.tuners, s.ID)
	delete(tu.mayCreate, s.ID)
	tu.Retire(s.ID)
}
