package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// The structs below are the output of -o json. They are stable: fields are only added. The doc tags become the
// reference in docs/reference/cli.md.

// sweepView is a sweep.
type sweepView struct {
	ID            string            `json:"id" doc:"id of the sweep, such as digits-1"`
	Name          string            `json:"name" doc:"name from the sweep's file"`
	Tenant        string            `json:"tenant" doc:"tenant that owns it"`
	Actor         string            `json:"actor" doc:"user who submitted it"`
	State         string            `json:"state" doc:"running, paused, stopping, done, stopped or failed"`
	Reason        string            `json:"reason" doc:"why it is in that state"`
	Waiting       string            `json:"waiting" doc:"why trials wait for devices, if any do"`
	Metric        string            `json:"metric" doc:"metric that is optimised"`
	Mode          string            `json:"mode" doc:"max or min"`
	Tuner         string            `json:"tuner" doc:"name of its tuner, such as hyperband, or plugin"`
	Submitted     *time.Time        `json:"submitted" doc:"time in UTC"`
	Ended         *time.Time        `json:"ended" doc:"time in UTC; null until then"`
	Seconds       number            `json:"elapsed_seconds" doc:"seconds from submission to the end, or until now"`
	Counts        countsView        `json:"counts" doc:"trials by state: queued, running, paused, completed, pruned, stopped, failed, total"`
	PlannedTrials *int32            `json:"planned_trials" doc:"total trials that the tuner plans; null if unbounded"`
	PlannedSteps  *int64            `json:"planned_steps" doc:"total steps; null if unbounded"`
	Steps         int64             `json:"steps" doc:"steps trained so far by all trials, repeated ones counted once"`
	DeviceSeconds number            `json:"device_seconds" doc:"device-seconds used"`
	Fairness      *fairnessView     `json:"fairness" doc:"rho (forecast over alone), alone_seconds, forecast_seconds, mean_sweeps, and auction: round, time, rho and alone_seconds after the newest auction; null once the sweep has ended"`
	Admission     *admissionView    `json:"admission" doc:"what a policy with admission (oasis) promises it, or why it does not: kind (measuring, admitted, waiting, rejected, broken, over), text, least_workers, most_workers, worker_devices, begins, ends, promised, worth, cost, again (when it would be admitted), schedule (begins, ends, type, workers); null under other policies"`
	Best          *bestView         `json:"best" doc:"the best trial so far: trial, metric, step, config; null before the first report"`
	Soups         []soupView        `json:"soups" doc:"stored averages of its checkpoints, oldest first: number, metric, bytes, sha256, time, actor, trials (those averaged), tried"`
	Notes         []noteView        `json:"notes" doc:"newest notes, oldest first: time, level, text, trial"`
	Labels        map[string]string `json:"labels" doc:"labels from the sweep's file"`
}

type fairnessView struct {
	Rho             number `json:"rho"`
	AloneSeconds    number `json:"alone_seconds"`
	ForecastSeconds number `json:"forecast_seconds"`
	MeanSweeps      number `json:"mean_sweeps"`
	// Auction has the results of the newest auction, or is nil.
	Auction *faredView `json:"auction"`
}

type faredView struct {
	Round        uint64     `json:"round"`
	Time         *time.Time `json:"time"`
	Rho          number     `json:"rho"`
	AloneSeconds number     `json:"alone_seconds"`
}

type countsView struct {
	Queued    int32 `json:"queued"`
	Running   int32 `json:"running"`
	Paused    int32 `json:"paused"`
	Completed int32 `json:"completed"`
	Pruned    int32 `json:"pruned"`
	Stopped   int32 `json:"stopped"`
	Failed    int32 `json:"failed"`
	Total     int32 `json:"total"`
}

type bestView struct {
	Trial  int32           `json:"trial"`
	Metric number          `json:"metric"`
	Step   int64           `json:"step"`
	Config json.RawMessage `json:"config"`
}

type noteView struct {
	Time  *time.Time `json:"time"`
	Level string     `json:"level"`
	Text  string     `json:"text"`
	Trial *int32     `json:"trial"`
}

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
	NodeLosses     int32                      `json:"node_losses" doc:"nodes that were lost while it ran there, since its last progress"`
	Suspected      bool                       `json:"suspected" doc:"whether it runs alone on a node until it makes progress, because nodes were lost while it ran there"`
	Node           string                     `json:"node" doc:"node where it runs; empty if it does not run"`
	Devices        []int32                    `json:"devices" doc:"indexes of its devices on that node"`
	Leases         []leaseView                `json:"leases" doc:"leases that it holds, the oldest first: lease_id, holder (workers or client), client, state, places (node, devices, type, ended), since, term_end, from_step, step"`
	Round          *forkRoundView             `json:"round" doc:"current fork slot: from_step, began, ends, forks (lease_id, places, state, share, steps, counted, steps_per_second, forecast_steps_per_second), consolidates_on, attempt; null for none"`
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
}

// nodeView is a node.
type nodeView struct {
	Name        string            `json:"name" doc:"name of the node"`
	State       string            `json:"state" doc:"up, draining, lost or left"`
	Reason      string            `json:"reason" doc:"why it is in that state"`
	Hostname    string            `json:"hostname" doc:"name of the machine"`
	Version     string            `json:"version" doc:"version of its worker"`
	Trusted     bool              `json:"trusted" doc:"whether its worker has joined this server and signs its messages"`
	LastSeen    *time.Time        `json:"last_seen" doc:"time in UTC"`
	CPUs        number            `json:"cpus" doc:"CPU cores"`
	MemoryBytes int64             `json:"memory_bytes" doc:"memory"`
	Labels      map[string]string `json:"labels" doc:"labels of the worker"`
	Devices     []deviceView      `json:"devices" doc:"devices: index, type, name, memory_bytes, uuid, pci, numa, speed, trial (which holds it, or null)"`
	Links       []linkView        `json:"links" doc:"fast links between devices: a, b, kind, lanes"`
	Faults      []faultView       `json:"faults" doc:"why it gets no new trials: word (unfit, drained, cordoned, backing off, open again), sweep (null for all), reason, since, until, times, trials, actor (who cordoned or drained it, or \"\")"`
	Warnings    []string          `json:"warnings" doc:"problems that its worker found but that do not prevent trials"`
}

type deviceView struct {
	Index       int32   `json:"index"`
	Type        string  `json:"type"`
	Name        string  `json:"name"`
	MemoryBytes int64   `json:"memory_bytes"`
	UUID        string  `json:"uuid"`
	PCI         string  `json:"pci"`
	NUMA        int32   `json:"numa"`
	Speed       number  `json:"speed"`
	Trial       *string `json:"trial"`
}

type linkView struct {
	A     int32  `json:"a"`
	B     int32  `json:"b"`
	Kind  string `json:"kind"`
	Lanes int32  `json:"lanes"`
}

func viewSweep(s *outbidv1.Sweep, now time.Time) sweepView {
	v := sweepView{
		ID: s.GetId(), Name: s.GetSpec().GetName(), Tenant: s.GetSpec().GetTenant(), Actor: s.GetActor(),
		State: sweepState(s.GetState()), Reason: s.GetReason(), Waiting: s.GetWaiting(),
		Metric: s.GetSpec().GetMetric(), Mode: s.GetSpec().GetMode(), Tuner: tunerName(s.GetSpec().GetTuner()),
		Submitted: viewTime(s.GetSubmitted()), Ended: viewTime(s.GetEnded()),
		Seconds: number(elapsedSeconds(s, now)), Counts: viewCounts(s.GetCounts()),
		Steps: s.GetSteps(), DeviceSeconds: number(s.GetDeviceSeconds()), Best: viewBest(s.GetBest()),
		Soups: []soupView{}, Notes: []noteView{}, Labels: s.GetSpec().GetLabels(),
	}
	if v.Tenant == "" {
		v.Tenant = "default"
	}
	if f := s.GetFairness(); f != nil {
		v.Fairness = &fairnessView{
			Rho: number(f.GetRho()), AloneSeconds: number(f.GetAloneSeconds()), ForecastSeconds: number(f.GetForecastSeconds()),
			MeanSweeps: number(f.GetMeanSweeps()),
		}
		if last := f.GetAuction(); last != nil {
			v.Fairness.Auction = &faredView{last.GetRound(), viewTime(last.GetTime()), number(last.GetRho()), number(last.GetAloneSeconds())}
		}
	}
	v.Admission = viewAdmission(s.GetAdmission())
	if v.Labels == nil {
		v.Labels = map[string]string{}
	}
	if o := s.GetOutlook(); o.GetTrials() > 0 {
		v.PlannedTrials = new(o.GetTrials())
	}
	if o := s.GetOutlook(); o.GetSteps() > 0 {
		v.PlannedSteps = new(o.GetSteps())
	}
	for _, soup := range s.GetSoups() {
		v.Soups = append(v.Soups, viewSoup(soup))
	}
	for _, n := range s.GetNotes() {
		v.Notes = append(v.Notes, viewNote(n))
	}
	return v
}

func viewNote(n *outbidv1.SweepNote) noteView {
	v := noteView{Time: viewTime(n.GetTime()), Level: n.GetLevel(), Text: n.GetText()}
	if n.Trial != nil {
		v.Trial = new(n.GetTrial())
	}
	return v
}

func viewCounts(c *outbidv1.TrialCounts) countsView {
	return countsView{
		Queued: c.GetQueued(), Running: c.GetRunning(), Paused: c.GetPaused(), Completed: c.GetCompleted(),
		Pruned: c.GetStopped(), Stopped: c.GetCancelled(), Failed: c.GetFailed(), Total: c.GetTotal(),
	}
}

func viewBest(t *outbidv1.Trial) *bestView {
	if t == nil || t.Best == nil {
		return nil
	}
	return &bestView{Trial: t.GetNumber(), Metric: number(t.GetBest()), Step: t.GetBestStep(), Config: configOf(t)}
}

func viewTrial(t *outbidv1.Trial) trialView {
	v := trialView{
		ID: trialID(t), Sweep: t.GetSweep(), Trial: t.GetNumber(), State: trialState(t.GetState()), Reason: t.GetReason(),
		Config: configOf(t), Step: t.GetStep(), UntilStep: t.GetUntilStep(), MetricStep: t.GetBestStep(),
		StepsPerSecond: number(t.GetStepsPerSecond()), Bracket: t.GetBracket(), Restarts: t.GetRestarts(),
		Resumes: t.GetResumes(), NodeLosses: t.GetNodeLosses(), Suspected: t.GetSuspected(), Node: t.GetNode(), Devices: t.GetDevices(), DeviceSeconds: number(t.GetDeviceSeconds()),
		Created: viewTime(t.GetCreated()), Ended: viewTime(t.GetEnded()), Checkpoints: []checkpointView{},
		Attributes: viewAttributes(t.GetAttributes()), Leases: []leaseView{}, Round: viewForkRound(t.GetRound()), Rounds: t.GetRounds(), Merges: viewMerges(t.GetMerges()),
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
		Key: c.GetKey(), Step: c.GetStep(), Bytes: c.GetBytes(), SHA256: c.GetSha256(), Time: viewTime(c.GetTime()),
	}
	if c.Metric != nil {
		v.Metric = new(number(c.GetMetric()))
	}
	return v
}

func viewNode(n *outbidv1.Node) nodeView {
	info := n.GetInfo()
	v := nodeView{
		Name: info.GetName(), State: lowerEnum(n.GetState().String(), "NODE_STATE_"), Reason: n.GetReason(),
		Hostname: info.GetHostname(), Version: info.GetVersion(), Trusted: info.GetTrusted(),
		LastSeen: viewTime(n.GetLastSeen()), CPUs: number(info.GetCpus()), MemoryBytes: info.GetMemoryBytes(),
		Labels: info.GetLabels(), Devices: []deviceView{}, Links: []linkView{}, Faults: viewFaults(n.GetFaults(), time.Now()),
		Warnings: append([]string{}, info.GetWarnings()...),
	}
	if v.Labels == nil {
		v.Labels = map[string]string{}
	}
	holders := map[int32]*outbidv1.ForkRef{}
	for _, u := range n.GetUses() {
		holders[u.GetDevice()] = u.GetFork()
	}
	for _, d := range info.GetDevices() {
		dv := deviceView{
			Index: d.GetIndex(), Type: d.GetType(), Name: d.GetName(), MemoryBytes: d.GetMemoryBytes(), UUID: d.GetUuid(),
			PCI: d.GetPci(), NUMA: d.GetNuma(), Speed: number(d.GetSpeed()),
		}
		if f := holders[d.GetIndex()]; f != nil {
			dv.Trial = new(fmt.Sprintf("%s/%d", f.GetSweep(), f.GetTrial()))
		}
		v.Devices = append(v.Devices, dv)
	}
	for _, l := range info.GetLinks() {
		v.Links = append(v.Links, linkView{A: l.GetA(), B: l.GetB(), Kind: l.GetKind(), Lanes: l.GetLanes()})
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

func viewTime(ts *timestamppb.Timestamp) *time.Time {
	if ts == nil {
		return nil
	}
	return new(ts.AsTime())
}

// elapsedSeconds returns the time from submission to the end, or until now.
func elapsedSeconds(s *outbidv1.Sweep, now time.Time) float64 {
	if s.GetSubmitted() == nil {
		return 0
	}
	end := now
	if s.GetEnded() != nil {
		end = s.GetEnded().AsTime()
	}
	return max(0, end.Sub(s.GetSubmitted().AsTime()).Seconds())
}

func sweepState(s outbidv1.SweepState) string { return lowerEnum(s.String(), "SWEEP_STATE_") }

func trialState(s outbidv1.TrialState) string { return state.TrialWord(s) }

// lowerEnum returns an enum value's name in lower case without its prefix.
func lowerEnum(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }

// tunerName returns the tuner's name as in a sweep's file.
func tunerName(t *outbidv1.Tuner) string {
	m := t.ProtoReflect()
	if !m.IsValid() {
		return ""
	}
	field := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind"))
	if field == nil {
		return ""
	}
	return string(field.Name())
}

// sortedKeys returns a map's keys in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
