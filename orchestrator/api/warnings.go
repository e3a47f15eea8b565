package api

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// warnings returns why a sweep's trials would wait on this cluster. It only warns; the policy decides.
func warnings(s *outbidv1.SweepSpec, nodes []*outbidv1.Node) []string {
	if s.GetExternal() != nil {
		return nil // its trials run elsewhere
	}
	var up []*outbidv1.Node
	for _, n := range nodes {
		if n.GetState() == outbidv1.NodeState_NODE_STATE_UP {
			up = append(up, n)
		}
	}
	if len(up) == 0 {
		return []string{"no worker is connected: the sweep waits for one"}
	}
	found := typeWarnings(s.GetResources(), up)
	if s.GetFunction() != nil && !slices.ContainsFunc(up, func(n *outbidv1.Node) bool { return n.GetInfo().GetTrusted() }) {
		found = append(found, "no worker of this server may run functions; a worker must join with 'outbid worker join' first")
	}
	if len(found) > 0 {
		return found
	}
	return sizeWarnings(s, up)
}

// typeWarnings names the requested device types that no node has.
func typeWarnings(r *outbidv1.Resources, nodes []*outbidv1.Node) []string {
	var have []string
	for _, n := range nodes {
		for _, d := range n.GetInfo().GetDevices() {
			have = append(have, d.GetType())
		}
	}
	slices.Sort(have)
	have = slices.Compact(have)
	var missing []string
	for _, want := range r.GetTypes() {
		if !slices.Contains(have, want) {
			missing = append(missing, want)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("no node has a device of type %s; there are: %s", strings.Join(missing, ", "),
		strings.Join(have, ", "))}
}

// sizeWarnings warns if no single node is large enough for a trial.
func sizeWarnings(s *outbidv1.SweepSpec, nodes []*outbidv1.Node) []string {
	r := s.GetResources()
	memory := int64(0)
	if r.GetMemory() != "" { // the spec has been checked
		memory, _ = terms.ParseBytes(r.GetMemory())
	}
	devices := int(max(1, r.GetDevices().GetMin()))
	most, fits := 0, false
	for _, n := range nodes {
		if s.GetFunction() != nil && !n.GetInfo().GetTrusted() {
			continue
		}
		count := maxUsableDevices(r, n.GetInfo().GetDevices())
		most = max(most, count)
		fits = fits || count >= devices && n.GetInfo().GetCpus() >= r.GetCpus() && n.GetInfo().GetMemoryBytes() >= memory
	}
	switch {
	case most < devices:
		return []string{fmt.Sprintf("a trial needs %d such devices on one node; the largest node has %d", devices, most)}
	case !fits:
		return []string{fmt.Sprintf("no node has the %g CPUs and %s of memory that a trial requests besides its devices",
			r.GetCpus(), orNone(r.GetMemory()))}
	}
	return nil
}

func orNone(memory string) string {
	if memory == "" {
		return "0 bytes"
	}
	return memory
}

// maxUsableDevices returns the most devices of one allowed type that a trial could get on a node.
func maxUsableDevices(r *outbidv1.Resources, devices []*outbidv1.Device) int {
	counts := map[string]int{}
	most := 0
	for _, d := range devices {
		kind := d.GetType()
		if len(r.GetTypes()) > 0 && !slices.Contains(r.GetTypes(), kind) || slices.Contains(r.GetExcludeTypes(), kind) {
			continue
		}
		counts[kind]++
		most = max(most, counts[kind])
	}
	return most
}
