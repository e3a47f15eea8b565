package endtoend

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/lab"
	rules "github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/setting"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// everyDay are the policies that every test run includes: the default one, and one of the lab. OUTBID_MATRIX=all runs all
// policies, those of the lab with outbid-lab, and "later" none.
var everyDay = []string{registry.Default, "gavel-las"}

// TestEveryPolicyWithEveryTuner runs the matrix of policies and tuners with the real binary. For each policy a server
// with two unlike workers runs a small real sweep of each tuner in parallel, while a client calls every read of the
// API. No read may fail, and the logs must not contain errors. In the end every sweep is done, all trials and steps are
// accounted for, and all devices are free.
func TestEveryPolicyWithEveryTuner(t *testing.T) {
	t.Parallel()
	policies := everyDay
	switch os.Getenv("OUTBID_MATRIX") {
	case "all":
		policies = lab.Policies().Names()
	case "later":
		t.Skip("make matrix runs all of it later")
	}
	for i, name := range policies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runMatrix(t, i, name)
		})
	}
}

// runMatrix runs one policy's row. Over two rows each tuner is tested with both directions of the metric.
func runMatrix(t *testing.T, row int, policy string) {
	t.Helper()
	var of testing.TB = t
	if !slices.Contains(registry.Product().Names(), policy) {
		of = inLab{t}
	}
	dir, locks := t.TempDir(), t.TempDir()
	args := []string{"up", "--policy", policy, "--workers", "2", "--devices", "fast:2", "--devices", "slow:2@0.5"}
	list := entries(t)
	if p, err := lab.Policies().New(policy, nil); err == nil && rules.ForksJobs(p) {
		list, args = append(list, forkedEntry()), append(args, "--policy-option", "restart=10ms")
	}
	s := serve(of, dir, args...)
	s.bound("bounded", 1)
	var sweeps []*entry
	for i, e := range list {
		e.spec = e.job.spec(t, locks)
		e.spec.Mode = []string{"min", "max"}[(row+i)%2]
		e.preview = s.preview(e.spec)
		e.id = s.submit(e.spec)
		sweeps = append(sweeps, e)
	}
	readers := read(t, s, sweeps)
	for _, e := range sweeps {
		s.mustDone(e.id)
	}
	readers.end()
	s.runCommands(dir, sweeps)
	for _, e := range sweeps {
		e.account(t, s)
	}
	s.allFree()
	noTwoOwners(t, locks)
	s.stop()
	mustRepeat(of, dir, "data")
}

// entry is one sweep of a row.
type entry struct {
	job job
	// exact is set if the tuner's outlook is exact, whatever trials report.
	exact   bool
	spec    *outbidv1.SweepSpec
	preview *outbidv1.PreviewSweepResponse
	id      string
}

// entries returns a small sweep for every tuner that a spec may name, by default with only the required settings. Other variants of sweeps, such as gangs or
// "checkpoints: all", are spread over them.
func entries(t *testing.T) []*entry {
	t.Helper()
	tuners := tunersByKind(t)
	kinds := (&outbidv1.Tuner{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	var list []*entry
	for i := range kinds.Len() {
		kind := string(kinds.Get(i).Name())
		if len(tuners[kind]) == 0 {
			tuners[kind] = []*entry{{job: job{tuner: requiredOnly(kinds.Get(i)), trials: 6}}}
		}
		for k, e := range tuners[kind] {
			e.job.name = strings.ReplaceAll(fmt.Sprintf("%s-%d", kind, k), "_", "-")
			e.job.mode, e.job.env = "well", map[string]string{"PACE": "4ms"}
			list = append(list, e)
		}
	}
	change := func(i int, f func(*outbidv1.SweepSpec)) { list[i%len(list)].job.change = f }
	change(0, func(s *outbidv1.SweepSpec) {
		s.Resources = &outbidv1.Resources{Devices: &outbidv1.DeviceCount{Min: 1, Max: 2}}
	})
	change(1, func(s *outbidv1.SweepSpec) {
		s.Resources = &outbidv1.Resources{Devices: &outbidv1.DeviceCount{Min: 2, Max: 2}}
	})
	change(2, func(s *outbidv1.SweepSpec) { s.Checkpoints = &outbidv1.Checkpoints{All: true} })
	change(3, func(s *outbidv1.SweepSpec) { s.Weight = 2 })
	change(4, func(s *outbidv1.SweepSpec) { s.Tenant = "bounded" })
	return list
}

// requiredOnly returns a tuner with its required settings, six steps.
func requiredOnly(kind protoreflect.FieldDescriptor) *outbidv1.Tuner {
	t := &outbidv1.Tuner{Seed: new(uint64(7))}
	m := t.ProtoReflect().Mutable(kind).Message()
	for i := range m.Descriptor().Fields().Len() {
		if f := m.Descriptor().Fields().Get(i); setting.Of(f).GetRequired() != "" {
			m.Set(f, protoreflect.ValueOfInt64(6))
		}
	}
	return t
}

// bound adds a tenant with a quota of devices. Reads that see it hold more fail.
func (s *server) bound(tenant string, devices int32) {
	s.t.Helper()
	_, err := s.SetTenant(s.t.Context(), &outbidv1.SetTenantRequest{
		Tenant: &outbidv1.Tenant{Name: tenant, Weight: 2, Quota: &outbidv1.TenantQuota{Devices: &devices}}, Add: true,
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// forkedEntry is a sweep whose survivors may be forked, for policies that fork.
func forkedEntry() *entry {
	tuner := &outbidv1.Tuner{Seed: new(uint64(7)), Kind: &outbidv1.Tuner_Asha{Asha: &outbidv1.Asha{MaxSteps: 36, Eta: 3, MinSteps: 12}}}
	return &entry{job: job{name: "forked", mode: "fork", tuner: tuner, trials: 3, change: func(s *outbidv1.SweepSpec) {
		s.Resources = &outbidv1.Resources{Forks: "auto"}
	}}}
}

// longest returns the last step of the sweep's longest trial.
func (e *entry) longest() int64 { return tuner.MaxSteps(e.spec.GetTuner()) }

// tunersByKind returns the sweeps of the matrix by the field of the spec's tuner that they set.
func tunersByKind(t *testing.T) map[string][]*entry {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	settings, err := structpb.NewStruct(map[string]any{"steps": 3})
	if err != nil {
		t.Fatal(err)
	}
	made := func(trials int32, exact bool, tuner *outbidv1.Tuner) *entry {
		tuner.Seed = new(uint64(7))
		return &entry{job: job{tuner: tuner, trials: trials}, exact: exact}
	}
	asha := func(form string) *outbidv1.Tuner {
		return &outbidv1.Tuner{Kind: &outbidv1.Tuner_Asha{Asha: &outbidv1.Asha{MaxSteps: 4, Eta: 2, Form: form}}}
	}
	return map[string][]*entry{
		"random": {made(4, true, random(5))},
		"grid":   {made(0, true, &outbidv1.Tuner{Kind: &outbidv1.Tuner_Grid{Grid: &outbidv1.GridSearch{MaxSteps: 4, Points: 3}}})},
		"bayes":  {made(8, false, &outbidv1.Tuner{Kind: &outbidv1.Tuner_Bayes{Bayes: &outbidv1.BayesianSearch{MaxSteps: 4}}})},
		"auto":   {made(8, false, &outbidv1.Tuner{Kind: &outbidv1.Tuner_Auto{Auto: &outbidv1.Auto{MaxSteps: 4}}})},
		"sobol":  {made(4, true, &outbidv1.Tuner{Kind: &outbidv1.Tuner_Sobol{Sobol: &outbidv1.SobolSearch{MaxSteps: 4}}})},
		"successive_halving": {made(0, true, &outbidv1.Tuner{Kind: &outbidv1.Tuner_SuccessiveHalving{
			SuccessiveHalving: &outbidv1.SuccessiveHalving{MaxSteps: 4, Eta: 2},
		}})},
		"hyperband": {made(0, true, hyperband(3))},
		"asha":      {made(6, false, asha("promote")), made(6, false, asha("stop"))},
		"median": {made(6, false, &outbidv1.Tuner{Kind: &outbidv1.Tuner_Median{
			Median: &outbidv1.MedianStopping{MaxSteps: 6, GraceSteps: 2, MinTrials: 2},
		}})},
		"pbt": {made(0, false, &outbidv1.Tuner{Kind: &outbidv1.Tuner_Pbt{
			Pbt: &outbidv1.Pbt{MaxSteps: 6, Population: 5, Interval: 2, Quantile: 0.4},
		}})},
		"performance_curve": {made(6, false, &outbidv1.Tuner{Kind: &outbidv1.Tuner_PerformanceCurve{
			PerformanceCurve: &outbidv1.PerformanceCurve{MaxSteps: 16},
		}})},
		"freeze_thaw": {made(6, false, &outbidv1.Tuner{Kind: &outbidv1.Tuner_FreezeThaw{
			FreezeThaw: &outbidv1.FreezeThaw{MaxSteps: 8},
		}})},
		"plugin": {made(0, false, &outbidv1.Tuner{Kind: &outbidv1.Tuner_Plugin{
			Plugin: &outbidv1.PluginTuner{Command: []string{self}, Settings: settings, MaxSteps: 3},
		}})},
	}
}

// account fails unless every trial of a sweep has ended as its tuner wanted and every step is counted.
func (e *entry) account(t *testing.T, s *server) {
	t.Helper()
	sweep, trials := s.sweep(e.id), s.trials(e.id)
	reported := s.reported(e.id)
	steps := int64(0)
	for n, tr := range trials {
		final := tr.GetState() == outbidv1.TrialState_TRIAL_STATE_COMPLETED || tr.GetState() == outbidv1.TrialState_TRIAL_STATE_STOPPED
		if !final || tr.GetNode() != "" || int(tr.GetNumber()) != n {
			t.Errorf("%s/%d is left as %v", e.id, n, tr)
		}
		steps += tr.GetStep()
		if _, copies := e.job.tuner.GetKind().(*outbidv1.Tuner_Pbt); copies || e.spec.GetResources().GetForks() != "" {
			continue // a copy does not train its source's steps, and a slow fork may miss some
		}
		for step := int64(1); step <= tr.GetStep(); step++ {
			if !reported[tr.GetNumber()][step] {
				t.Errorf("%s/%d is at step %d without a report of step %d", e.id, n, tr.GetStep(), step)
			}
		}
	}
	counts := sweep.GetCounts()
	if ended := counts.GetCompleted() + counts.GetStopped(); ended != counts.GetTotal() || int(counts.GetTotal()) != len(trials) {
		t.Errorf("%s counts %v of %d trials", e.id, counts, len(trials))
	}
	if _, copies := e.job.tuner.GetKind().(*outbidv1.Tuner_Pbt); !copies && steps != sweep.GetSteps() {
		t.Errorf("%s counts %d steps, and its trials %d", e.id, sweep.GetSteps(), steps)
	}
	if o := e.preview.GetOutlook(); e.exact && (int(o.GetTrials()) != len(trials) || o.GetSteps() != sweep.GetSteps()) {
		t.Errorf("%s trained %d trials for %d steps, but its preview has %d and %d", e.id, len(trials), sweep.GetSteps(),
			o.GetTrials(), o.GetSteps())
	}
	if sweep.GetBest() == nil || len(sweep.GetBest().GetCheckpoints()) == 0 {
		t.Errorf("%s has no best trial with a checkpoint: %v", e.id, sweep.GetBest())
	}
}

// allFree fails unless every device of both workers is free.
func (s *server) allFree() {
	s.t.Helper()
	r, err := s.ListNodes(s.t.Context(), &outbidv1.ListNodesRequest{})
	if err != nil || len(r.GetNodes()) != 2 {
		s.t.Fatalf("%v, %v", r, err)
	}
	for _, n := range r.GetNodes() {
		held := slices.ContainsFunc(n.GetUses(), func(u *outbidv1.DeviceUse) bool { return u.GetFork() != nil })
		if held || n.GetState() != outbidv1.NodeState_NODE_STATE_UP || len(n.GetInfo().GetDevices()) != 2 {
			s.t.Errorf("a node is left as %v", n)
		}
	}
}

// preview returns a sweep's preview.
func (s *server) preview(spec *outbidv1.SweepSpec) *outbidv1.PreviewSweepResponse {
	s.t.Helper()
	r, err := s.PreviewSweep(s.t.Context(), &outbidv1.PreviewSweepRequest{Spec: spec})
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// runCommands runs the commands that read, like users.
func (s *server) runCommands(dir string, sweeps []*entry) {
	s.t.Helper()
	commands := [][]string{{"ls"}, {"nodes"}, {"auction"}, {"auction", "--list"}}
	last := sweeps[len(sweeps)-1].id
	for _, e := range sweeps {
		if e.spec.GetTuner().GetPerformanceCurve() != nil {
			last = e.id
		}
	}
	for _, name := range []string{"show", "watch", "best", "logs"} {
		commands = append(commands, []string{name, last})
	}
	for _, args := range commands {
		p := start(s.t, dir, append(args, "--server", s.Info.API)...)
		<-p.ended
		if text, _ := p.out.text(); p.err != nil || strings.Contains(text, "internal error") {
			s.t.Errorf("outbid %s: %v\n%s", strings.Join(args, " "), p.err, text)
		}
	}
}
