package control_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// shelf is a list of objects.
type shelf map[string]time.Time

// List calls f for every object.
func (s shelf) List(_ context.Context, _ string, f func(objects.Info) bool) error {
	for key, modified := range s {
		f(objects.Info{Key: key, Modified: modified})
	}
	return nil
}

func TestDeleteOrphans(t *testing.T) {
	t.Parallel()
	l := startLoop(t, startNATS(t), &reports{})
	spec := sim.Sweep("s", "min", 2, sim.Tuner("random", map[string]int64{"max_steps": 50}))
	id, err := l.Submit(t.Context(), spec, "me", "")
	if err != nil {
		t.Fatal(err)
	}
	l.Uplink(&outbidv1.Uplink{Node: "n", Boot: "b", Info: &outbidv1.NodeInfo{Devices: []*outbidv1.Device{{Type: "gpu"}}}})
	o := <-l.orders
	for len(o.GetAssignments()) == 0 {
		l.Uplink(&outbidv1.Uplink{Node: "n", Boot: "b"})
		o = <-l.orders
	}
	leaseID := o.GetAssignments()[0].GetFork().GetLeaseId()
	now := time.Now()
	old := now.Add(-2 * time.Hour)
	for key, want := range map[string]int{
		fmt.Sprintf("checkpoints/%s/0/000000000003-%d.ckpt", id, leaseID+7):              1,
		fmt.Sprintf("checkpoints/%s/0/000000000004-%d.ckpt", id, leaseID):                0, // of the running fork
		fmt.Sprintf("checkpoints/%s/0/000000000003-%d.safetensors.outer", id, leaseID+7): 1, // of an outer optimizer
		fmt.Sprintf("checkpoints/%s/0/000000000004-%d.safetensors.outer", id, leaseID):   0,
		fmt.Sprintf("checkpoints/%s/0/000000000003-%d.shards.1", id, leaseID+7):          1, // of a save that was not completed
		fmt.Sprintf("checkpoints/%s/0/000000000004-%d.shards.1", id, leaseID):            0,
		"checkpoints/other-9/0/000000000003-1.ckpt":                                      0, // of a sweep that is not in the ledger
		"checkpoints/" + id + "/99/000000000003-1.ckpt":                                  0,
		"checkpoints/readme":                             0,
		objects.SoupKey(id, "name"):                      1, // it was stored before its server was killed
		objects.SoupKey("other-9", "name"):               0,
		"checkpoints/" + id + "/soups/n/a.safetensors":   0,
		"checkpoints/" + id + "/soups/name.safetensors2": 0,
	} {
		if n, err := l.DeleteOrphans(t.Context(), shelf{key: old}, now.Add(-time.Hour)); err != nil || n != want {
			t.Errorf("%s: %d deleted, %v; want %d", key, n, err, want)
		}
		if n, err := l.DeleteOrphans(t.Context(), shelf{key: now}, now.Add(-time.Hour)); err != nil || n != 0 {
			t.Errorf("%s is new: %d deleted, %v", key, n, err)
		}
	}
	l.end(t)
}
