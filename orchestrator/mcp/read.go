package mcp

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// sweepInput names a sweep.
func sweepInput() input {
	return input{
		name: "sweep", kind: "string", required: true, least: 1, most: 200,
		about: "id of a sweep such as digits-1, or a name such as digits for its newest sweep",
	}
}

// pageInput is the position in a list.
func pageInput() input {
	return input{
		name: "page_token", kind: "string", most: 2000,
		about: "next_page_token of the previous answer, to read on with the same arguments",
	}
}

// trialInput is the number of a trial.
func trialInput(absent string) input {
	return input{name: "trial", kind: "integer", most: 1 << 30, about: "number of a trial; if absent, " + absent}
}

// limitInput limits the length of a list.
func limitInput(most, otherwise int) input {
	return input{name: "limit", kind: "integer", least: 1, most: float64(most), otherwise: otherwise, about: "at most this many"}
}

// serverView is the answer of show_server.
type serverView struct {
	answer
	Version string         `json:"version"`
	Policy  string         `json:"policy" jsonschema:"the policy that gives devices to trials"`
	Caller  callerView     `json:"caller" jsonschema:"whose permissions these tools have"`
	Devices []devicesView  `json:"devices" jsonschema:"devices of nodes that are up, by type"`
	Nodes   map[string]int `json:"nodes" jsonschema:"number of nodes by state"`
	Faults  []string       `json:"faults,omitempty" jsonschema:"why nodes get no new trials"`
}

type callerView struct {
	Name   string `json:"name,omitempty"`
	Tenant string `json:"tenant,omitempty" jsonschema:"* for every tenant"`
	Role   string `json:"role,omitempty" jsonschema:"viewers only read, users control sweeps of their tenant"`
}

type devicesView struct {
	Type  string `json:"type"`
	Total int    `json:"total"`
	Free  int    `json:"free"`
}

func showServerTool() *tool {
	return define(tool{
		name: "show_server", title: "Show the Outbid server",
		about: "Shows which Outbid server the tools act on, as whom, its policy, and its devices by type.",
	}, func(ctx context.Context, c *call, _ struct{}) (*serverView, error) {
		info, err := c.API.GetServerInfo(ctx, &outbidv1.GetServerInfoRequest{})
		if err != nil {
			return nil, err
		}
		nodes, err := c.API.ListNodes(ctx, &outbidv1.ListNodesRequest{})
		if err != nil {
			return nil, err
		}
		who := info.GetCaller()
		v := &serverView{
			Version: info.GetVersion(), Policy: info.GetPolicy(),
			Caller: callerView{cleanLine(who.GetName(), maxName), who.GetTenant(), who.GetRole()},
		}
		v.countNodes(nodes.GetNodes())
		return v, nil
	})
}

// maxFaults is the number of faults of nodes that show_server lists.
const maxFaults = 20

func (v *serverView) countNodes(nodes []*outbidv1.Node) {
	v.Nodes = map[string]int{}
	types := map[string]devicesView{}
	for _, n := range nodes {
		v.Nodes[state.NodeWord(n.GetState())]++
		if n.GetState() != outbidv1.NodeState_NODE_STATE_UP {
			continue
		}
		for _, d := range n.GetInfo().GetDevices() {
			d := cleanLine(d.GetType(), maxName)
			types[d] = devicesView{d, types[d].Total + 1, types[d].Free + 1}
		}
		for _, use := range n.GetUses() {
			for _, d := range n.GetInfo().GetDevices() {
				if d.GetIndex() == use.GetDevice() {
					d := cleanLine(d.GetType(), maxName)
					types[d] = devicesView{d, types[d].Total, types[d].Free - 1}
				}
			}
		}
		for _, f := range n.GetFaults() {
			v.Faults = append(v.Faults, cleanLine(fmt.Sprintf("%s: %s", n.GetInfo().GetName(), f.GetReason()), maxLine))
		}
	}
	if len(v.Faults) > maxFaults {
		v.cut("faults: %d more", len(v.Faults)-maxFaults)
		v.Faults = v.Faults[:maxFaults]
	}
	v.Devices = []devicesView{}
	for _, t := range firstKeys(types) {
		v.Devices = append(v.Devices, types[t])
	}
}

// sweepsView is the answer of list_sweeps.
type sweepsView struct {
	answer
	Sweeps []sweepView `json:"sweeps"`
	Next   string      `json:"next_page_token,omitempty" jsonschema:"page_token of the rest; absent at the end"`
}

func listSweepsTool() *tool {
	type arguments struct {
		Tenant, State string
		Limit         int
		PageToken     string `json:"page_token"`
	}
	return define(tool{
		name: "list_sweeps", title: "List sweeps", about: "Lists the sweeps that the caller may see, newest first.",
		inputs: []input{
			{name: "tenant", kind: "string", most: 100, about: "only sweeps of this tenant"},
			{name: "state", kind: "string", words: sweepStates(), about: "only sweeps in this state"},
			limitInput(100, 20), pageInput(),
		},
	}, func(ctx context.Context, c *call, in arguments) (*sweepsView, error) {
		got, err := readList(in.PageToken, in.Limit, func(page string) ([]*outbidv1.Sweep, string, error) {
			got, err := c.API.ListSweeps(ctx, &outbidv1.ListSweepsRequest{Tenant: in.Tenant, PageSize: apiPage, PageToken: page})
			return got.GetSweeps(), got.GetNextPageToken(), err
		}, func(s *outbidv1.Sweep) bool { return in.State == "" || sweepState(s) == in.State }, func(s *outbidv1.Sweep) sweepView {
			v := c.viewSweep(s)
			v.annotationView = viewAnnotation(s.GetAnnotation(), maxName)
			return v
		})
		if err != nil {
			return nil, err
		}
		v := &sweepsView{Sweeps: got.items, Next: got.next}
		got.cutIn(&v.answer, "sweeps")
		return v, nil
	})
}

// sweepDetail is the answer of show_sweep.
type sweepDetail struct {
	answer
	Sweep sweepView  `json:"sweep"`
	Notes []noteView `json:"notes,omitempty" jsonschema:"newest notes, oldest first"`
	Soups int        `json:"soups,omitempty" jsonschema:"number of stored averages of its checkpoints"`
	Spec  string     `json:"spec,omitempty" jsonschema:"the sweep's file as YAML, with hidden values of environment variables"`
}

const (
	maxNotes = 20
	maxSpec  = 20_000
)

func showSweepTool() *tool {
	type arguments struct {
		Sweep string
		Spec  bool
	}
	return define(tool{
		name: "show_sweep", title: "Show a sweep",
		about: "Shows a sweep: state, progress, the best trial with its configuration, and notes.",
		inputs: []input{sweepInput(), {
			name: "spec", kind: "boolean", otherwise: false,
			about: "also return the sweep's file, such as to write a similar one",
		}},
	}, func(ctx context.Context, c *call, in arguments) (*sweepDetail, error) {
		s, err := c.sweep(ctx, in.Sweep)
		if err != nil {
			return nil, err
		}
		v := &sweepDetail{Sweep: c.viewSweep(s), Notes: viewNotes(s, maxNotes), Soups: len(s.GetSoups())}
		if older := len(s.GetNotes()) - maxNotes; older > 0 {
			v.cut("notes: %d older ones", older)
		}
		if in.Spec {
			if err := v.addSpec(s.GetSpec()); err != nil {
				return nil, err
			}
		}
		return v, nil
	})
}

// addSpec adds the sweep's file without the values of its environment variables, which may be secrets.
func (v *sweepDetail) addSpec(s *outbidv1.SweepSpec) error {
	own := proto.CloneOf(s)
	if _, env := spec.Env(own); env != nil {
		for name := range maps.Clone(env) {
			env[name] = "***"
		}
	}
	text, err := spec.Marshal(own)
	if err != nil {
		return err
	}
	v.Spec = cleanText(string(text), maxSpec)
	if len(text) > maxSpec {
		v.cut("spec: only the first %d of %d bytes", maxSpec, len(text))
	}
	return nil
}

// trialsView is the answer of list_trials.
type trialsView struct {
	answer
	Sweep  string      `json:"sweep"`
	Metric string      `json:"metric" jsonschema:"the metric that is optimised, with its mode"`
	Trials []trialView `json:"trials"`
	Next   string      `json:"next_page_token,omitempty" jsonschema:"page_token of the rest; absent at the end"`
}

func listTrialsTool() *tool {
	type arguments struct {
		Sweep, Order, State string
		Limit               int
		PageToken           string `json:"page_token"`
	}
	return define(tool{
		name: "list_trials", title: "List trials of a sweep",
		about: "Lists trials of a sweep with their configurations and metrics, the best first.",
		inputs: []input{
			sweepInput(),
			{name: "order", kind: "string", words: []string{"best", "number"}, otherwise: "best", about: "order of the trials"},
			{name: "state", kind: "string", words: trialStates(), about: "only trials in this state"},
			limitInput(100, 20), pageInput(),
		},
	}, func(ctx context.Context, c *call, in arguments) (*trialsView, error) {
		s, err := c.sweep(ctx, in.Sweep)
		if err != nil {
			return nil, err
		}
		got, err := readList(in.PageToken, in.Limit, func(page string) ([]*outbidv1.Trial, string, error) {
			return c.trials(ctx, s, in.Order, page)
		}, func(t *outbidv1.Trial) bool { return in.State == "" || state.TrialWord(t.GetState()) == in.State }, viewTrial)
		if err != nil {
			return nil, err
		}
		v := &trialsView{
			Sweep: s.GetId(), Metric: s.GetSpec().GetMode() + " " + cleanLine(s.GetSpec().GetMetric(), maxName),
			Trials: got.items, Next: got.next,
		}
		got.cutIn(&v.answer, "trials")
		return v, nil
	})
}

// trials reads a page of a sweep's trials.
func (c *call) trials(ctx context.Context, s *outbidv1.Sweep, order, page string) ([]*outbidv1.Trial, string, error) {
	got, err := c.API.ListTrials(ctx, &outbidv1.ListTrialsRequest{Sweep: s.GetId(), PageSize: apiPage, PageToken: page, Order: order})
	return got.GetTrials(), got.GetNextPageToken(), err
}

// allTrials reads a sweep's trials by number, at most maxScanned. It reports whether these are all.
func (c *call) allTrials(ctx context.Context, s *outbidv1.Sweep) (all []*outbidv1.Trial, whole bool, err error) {
	for page := ""; len(all) < maxScanned; {
		some, next, err := c.trials(ctx, s, "number", page)
		if err != nil {
			return nil, false, err
		}
		all = slices.Concat(all, some)
		if page = next; page == "" {
			return all, true, nil
		}
	}
	return all, false, nil
}
