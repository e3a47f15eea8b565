package endtoend

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TestLargeInputsEndNoServer (B1) checks inputs that exceed one message of the ledger, which once ended the server at
// each start. Inputs that are too large are rejected by name; any number of others may arrive at once.
func TestLargeInputsEndNoServer(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--policy", "drf")
	c.worker("a", "cpu:2", "")
	healthy := c.submit(job{name: "healthy", mode: "well", tuner: random(1_000_000), trials: 1, env: map[string]string{"PACE": "20ms"}}.spec(t, c.locks))
	c.waitSteps(healthy, 3)
	tooLarge := map[string]*outbidv1.SweepSpec{
		"space.text":  bigSweep(40, 2_500_000),
		"a spec":      bigSweep(40, 47_500, 40),
		"labels":      bigSweep(1, 10),
		"environment": bigSweep(1, 10),
	}
	tooLarge["labels"].Labels = map[string]string{}
	for i := range 60 {
		tooLarge["labels"].Labels[fmt.Sprint(i)] = strings.Repeat("x", 1000)
	}
	tooLarge["environment"].GetProgram().Env = map[string]string{"TEXT": strings.Repeat("x", 1_900_000)}
	for what, spec := range tooLarge {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				_, err := c.SubmitSweep(context.Background(), &outbidv1.SubmitSweepRequest{Spec: spec})
				if code := status.Code(err); code != codes.InvalidArgument || !strings.Contains(err.Error(), "bytes") {
					t.Errorf("%s: %v", what, err)
				}
			})
		}
		all.Wait()
	}
	ids := []string{c.submit(manyMetrics())}
	for range 2 {
		spec := bigSweep(210, 10)
		spec.Space["text"] = &outbidv1.Parameter{Kind: &outbidv1.Parameter_Constant{Constant: structpb.NewStringValue(strings.Repeat("v", 60_000))}}
		spec.Limits.WallTime = ""
		ids = append(ids, c.submit(spec))
	}
	c.worker("large", "cpu:200", "") // all of its devices are given at once
	for _, id := range ids {
		if sw := c.wait(id); sw.GetCounts().GetFailed() > 0 || sw.GetCounts().GetCompleted() != sw.GetSpec().GetLimits().GetTrials() {
			t.Errorf("%s is %s: %v (%s)", id, sw.GetState(), sw.GetCounts(), sw.GetReason())
		}
	}
	c.kill()
	c.restart()
	c.waitSteps(healthy, c.sweep(healthy).GetSteps()+3)
	if trial := c.trials(healthy)[0]; trial.GetRestarts() > 0 {
		t.Errorf("the healthy trial was restarted %d times", trial.GetRestarts())
	}
	noTwoOwners(t, c.locks)
}

// manyMetrics is a sweep of 16 trials that each report 900 metrics, which is close to the size limit of a report.
func manyMetrics() *outbidv1.SweepSpec {
	spec := job{name: "many", tuner: random(8), trials: 16}.bare()
	spec.Workload = &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{
		Command: []string{"sh", "-c", strings.NewReplacer("{", "{{", "}", "}}").Replace(hostileScripts()["B1: reports of 900 metrics"])},
	}}
	return spec
}
