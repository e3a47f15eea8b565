package policytest

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// full returns a view in which every field is set.
func full() *policy.View {
	now := time.Unix(1000, 0).UTC()
	nodes := []cluster.Node{{
		Name: "n", Rack: "r", Devices: []cluster.Device{{Type: "a", Speed: 1}, {Index: 1, Type: "a", Slot: 1, Speed: 1}}, CPUs: 8,
		Memory: 8, Trusted: true, Links: []cluster.Link{{B: 1, Rank: 2}},
	}}
	demand := cluster.Demand{
		Min: 1, Max: 2, Types: []string{"a"}, Exclude: []string{"b"}, CPUs: 1, Memory: 1, NeedsTrust: true, MultiNode: true, Mixed: true,
	}
	speeds := func() *cluster.Speeds {
		return &cluster.Speeds{Measured: []cluster.Speed{{Type: "a", Devices: 1, Rate: 2}}}
	}
	app := &policy.App{
		ID: "a", Tenant: "t", Weight: 1, Submitted: now, Order: 1, Spec: &outbidv1.SweepSpec{}, DeviceSeconds: 1, AppSecondsBefore: 1,
		Paused: true, Demand: demand, Speeds: speeds(), TotalSteps: 9, Tuner: "asha", Finished: 1, StepsDone: 1,
		Outlook: func() tuner.Outlook { return tuner.Outlook{} },
	}
	app.Jobs = []*policy.Job{{
		App: app, Trial: 1, Demand: demand, Speeds: speeds(), Weight: 1, Created: now, Queued: now, Granted: now, TermEnd: now,
		Gangs: []cluster.Gang{{{Node: 0, Devices: []int{0}}}}, Ending: true, Step: 1, UntilStep: 2, TotalSteps: 3, Reported: now,
		DeviceSeconds: 1, Leases: 1, Curve: []policy.Point{{Step: 1, Value: 1}}, Minimise: true,
	}}
	v := &policy.View{Now: now, Round: 1, Nodes: nodes, Apps: []*policy.App{app}, AppSeconds: 1, Free: cluster.NewCapacity(nodes)}
	v.Free.Take(app.Jobs[0].Gang(), demand)
	return v
}

// Every change by a policy is detected: each field of everything in a view is cleared in turn.
func TestEveryChangeOfAViewShows(t *testing.T) {
	t.Parallel()
	places := map[string]func(*policy.View) any{
		"view":   func(v *policy.View) any { return v },
		"node":   func(v *policy.View) any { return &v.Nodes[0] },
		"device": func(v *policy.View) any { return &v.Nodes[0].Devices[1] },
		"link":   func(v *policy.View) any { return &v.Nodes[0].Links[0] },
		"app":    func(v *policy.View) any { return v.Apps[0] },
		"job":    func(v *policy.View) any { return v.Apps[0].Jobs[0] },
		"demand": func(v *policy.View) any { return &v.Apps[0].Jobs[0].Demand },
		"place":  func(v *policy.View) any { return &v.Apps[0].Jobs[0].Gang()[0] },
		"point":  func(v *policy.View) any { return &v.Apps[0].Jobs[0].Curve[0] },
		"speed":  func(v *policy.View) any { return &v.Apps[0].Speeds.Measured[0] },
	}
	for name, place := range places {
		v := full()
		before := Imprint(v)
		if !bytes.Equal(before, Imprint(v)) {
			t.Fatal("two imprints of a view differ")
		}
		fields := reflect.ValueOf(place(v)).Elem()
		for f := range fields.NumField() {
			field := fields.Field(f)
			if field.IsZero() || field.Type() == reflect.TypeFor[*cluster.Capacity]() {
				continue // zero already, such as the index of the first device; capacity is changed below
			}
			was := reflect.New(field.Type()).Elem()
			was.Set(field)
			field.SetZero()
			if bytes.Equal(before, Imprint(v)) {
				t.Errorf("the %s has lost its %s, which does not show", name, fields.Type().Field(f).Name)
			}
			field.Set(was)
		}
	}
	for what, change := range map[string]func(*policy.View){
		"a device is taken":      func(v *policy.View) { v.Free.Take(cluster.Gang{{Devices: []int{1}}}, cluster.Demand{}) },
		"cores are taken":        func(v *policy.View) { v.Free.Take(cluster.Gang{{}}, cluster.Demand{CPUs: 7}) },
		"a node drains":          func(v *policy.View) { v.Nodes[0].Draining = true },
		"a type of the demand":   func(v *policy.View) { v.Apps[0].Jobs[0].Demand.Types[0] = "c" },
		"a device of the gang":   func(v *policy.View) { v.Apps[0].Jobs[0].Gang()[0].Devices[0] = 1 },
		"a job put in its place": func(v *policy.View) { j := *v.Apps[0].Jobs[0]; v.Apps[0].Jobs[0] = &j },
	} {
		v := full()
		before := Imprint(v)
		if change(v); bytes.Equal(before, Imprint(v)) {
			t.Errorf("%s, which does not show", what)
		}
	}
}
