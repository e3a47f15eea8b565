package cli

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// trialView is a trial.
type trialView struct {
	ID             string                     `json:"id" doc:"SWEEP/TRIAL, such as digits-1/17"`
	Sweep          string                     `json:"sweep" doc:"id of its sweep"`
	Trial          int32                      `json:"trial" doc:"number within the sweep, from 0"`
	State          string                     `json:"state" doc:"queued, running, paused, completed, pruned (by its tuner or a limit), stopped (by a person) or failed"`
	Reason         string                     `json:"reason" doc:"why it is in that state"`
	Config         json.RawMessage            `json:"config" doc:"configuration, with distinct integers and floats"`
	Step           int64                      `json:"step" doc:"steps done"`
	UntilStep      int64                      `json:"until_step" doc:"step at which it ends; 0 if its code decides"`
	Metric         *number                    `json:"metric" doc:"best value of the sweep's metric; null before the first report"`
	MetricStep     int64                      `json:"metric_step" doc:"step of that value"`
	Last           *reportView                `json:"last" doc:"newest report: step, metrics, time, train_seconds; null before the first"`
	Attributes     map[string]json.RawMessage `json:"attributes" doc:"values that its training code noted, by name"`
	StepsPerSecond number                     `json:"steps_per_second" doc:"speed of its newest process; 0 if unknown"`
	Bracket        int32                      `json:"bracket" doc:"bracket of Hyperband or ASHA"`
	Restarts       int32                      `json:"restarts" doc:"how often its process was started again after a failure"`
	Resumes        int32                      `json:"resumes" doc:"how often it was paused and continued"`
	Retries        int32                      `json:"retries" doc:"how often a person retried it after it had failed; its tuner does not know of what it did since"`
	NodeLosses     int32                      `json:"node_losses" doc:"nodes that were lost while it ran there, since its last progress"`
	Suspected      bool                       `json:"suspected" doc:"whether it runs alone on a node until it makes progress, because nodes were lost while it ran there"`
	Node           string                     `json:"node" doc:"node where it runs; empty if it does not run"`
	Devices        []int32                    `json:"devices" doc:"indexes of its devices on that node"`
	Leases         []leaseView                `json:"leases" doc:"leases that it holds, the oldest first: lease_id, holder (workers or client), client, state, places (node, devices, type, ended), since, term_end, from_step, step"`
	Round          *forkSlotView              `json:"round" doc:"current fork slot: from_step, began, ends, forks (lease_id, places, state, share, steps, counted, steps_per_second, forecast_steps_per_second), consolidates_on, attempt; null for none"`
	Rounds         int32                      `json:"rounds" doc:"number of fork slots that have ended"`
	Merges         []mergeView                `json:"merges" doc:"the newest ended fork slots, oldest first, at most eight: round, began, time, from_step, step, forks, averaged_on (the node that averaged; empty if nothing was averaged), reason; where forks_merge is best, verdict (pending, kept or dropped), metric (the average's first report) and best_metric (the best fork's)"`
	DeviceSeconds  number                     `json:"device_seconds" doc:"device-seconds used"`
	Created        *time.Time                 `json:"created" doc:"time in UTC"`
	Ended          *time.Time                 `json:"ended" doc:"time in UTC; null until then"`
	Checkpoints    []checkpointView           `json:"checkpoints" doc:"checkpoints that are kept: key, step, bytes, sha256, time, metric"`
}

type leaseView struct {
	LeaseID  uint64      `json:"lease_id"`
	Holder   string      `json:"holder"`
	Client   string      `json:"client"`
	State    string      `json:"state"`
	Places   []placeView `json:"places"`
	Since    *time.Time  `json:"since"`
	TermEnd  *time.Time  `json:"term_end"`
	FromStep int64       `json:"from_step"`
	Step     int64       `json:"step"`
}

type placeView struct {
	Node    string  `json:"node"`
	Devices []int32 `json:"devices"`
	Type    string  `json:"type"`
	Ended   bool    `json:"ended"`
}

func viewLease(l *outbidv1.TrialLease) leaseView {
	v := leaseView{
		LeaseID: l.GetLeaseId(), Holder: l.GetHolder(), Client: l.GetClient(), State: l.GetState(),
		Since: viewTime(l.GetSince()), TermEnd: viewTime(l.GetTermEnd()), FromStep: l.GetFromStep(), Step: l.GetStep(),
	}
	v.Places = viewPlaces(l.GetPlaces())
	return v
}

func viewPlaces(places []*outbidv1.TrialPlace) []placeView {
	all := make([]placeView, len(places))
	for i, p := range places {
		all[i] = placeView{p.GetNode(), p.GetDevices(), p.GetType(), p.GetEnded()}
	}
	return all
}

type reportView struct {
	Step         int64             `json:"step"`
	Metrics      map[string]number `json:"metrics"`
	Time         *time.Time        `json:"time"`
	TrainSeconds number            `json:"train_seconds"`
}

type checkpointView struct {
	Key    string     `json:"key"`
	Step   int64      `json:"step"`
	Bytes  int64      `json:"bytes"`
	SHA256 string     `json:"sha256"`
	Time   *time.Time `json:"time"`
	Metric *number    `json:"metric"`
	Shards int32      `json:"shards,omitempty"`
}

func viewTrial(t *outbidv1.Trial) trialView {
	v := trialView{
		ID: trialID(t), Sweep: t.GetSweep(), Trial: t.GetNumber(), State: trialState(t.GetState()), Reason: t.GetReason(),
		Config: configOf(t), Step: t.GetStep(), UntilStep: t.GetUntilStep(), MetricStep: t.GetBestStep(),
		StepsPerSecond: number(t.GetStepsPerSecond()), Bracket: t.GetBracket(), Restarts: t.GetRestarts(),
		Resumes: t.GetResumes(), Retries: t.GetRetries(), NodeLosses: t.GetNodeLosses(), Suspected: t.GetSuspected(), Node: t.GetNode(), Devices: t.GetDevices(), DeviceSeconds: number(t.GetDeviceSeconds()),
		Created: viewTime(t.GetCreated()), Ended: viewTime(t.GetEnded()), Checkpoints: []checkpointView{},
		Attributes: viewAttributes(t.GetAttributes()), Leases: []leaseView{}, Round: viewForkSlot(t.GetRound()), Rounds: t.GetRounds(), Merges: viewMerges(t.GetMerges()),
	}
	for _, l := range t.GetLeases() {
		v.Leases = append(v.Leases, viewLease(l))
	}
	if v.Devices == nil {
		v.Devices = []int32{}
	}
	if t.Best != nil {
		v.Metric = new(number(t.GetBest()))
	}
	if r := t.GetLast(); r != nil {
		v.Last = &reportView{
			Step: r.GetStep(), Metrics: viewMetrics(r.GetMetrics()), Time: viewTime(r.GetTime()),
			TrainSeconds: number(r.GetTrainSeconds()),
		}
	}
	for _, c := range t.GetCheckpoints() {
		v.Checkpoints = append(v.Checkpoints, viewCheckpoint(c))
	}
	return v
}

// viewAttributes returns the noted values that are valid JSON.
func viewAttributes(noted map[string]string) map[string]json.RawMessage {
	v := make(map[string]json.RawMessage, len(noted))
	for name, value := range noted {
		if json.Valid([]byte(value)) {
			v[name] = json.RawMessage(value)
		}
	}
	return v
}

func viewMetrics(m map[string]float64) map[string]number {
	v := make(map[string]number, len(m))
	for name, value := range m {
		v[name] = number(value)
	}
	return v
}

func viewCheckpoint(c *outbidv1.Checkpoint) checkpointView {
	v := checkpointView{
		Key: c.GetKey(), Step: c.GetStep(), Bytes: c.GetBytes() + c.GetShardBytes(), SHA256: c.GetSha256(), Time: viewTime(c.GetTime()),
		Shards: c.GetShards(),
	}
	if c.Metric != nil {
		v.Metric = new(number(c.GetMetric()))
	}
	return v
}

// configOf returns a trial's configuration as JSON. The canonical text distinguishes integers from floats.
func configOf(t *outbidv1.Trial) json.RawMessage {
	if text := t.GetConfigJson(); json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	data, err := json.Marshal(t.GetConfig().AsMap())
	if err != nil {
		return json.RawMessage("{}")
	}
	return data
}

func trialID(t *outbidv1.Trial) string { return fmt.Sprintf("%s/%d", t.GetSweep(), t.GetNumber()) }

func trialState(s outbidv1.TrialState) string { return state.TrialWord(s) }
