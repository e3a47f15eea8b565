// Package clusterspec parses the cluster of a simulation: a short form such as "v100:12/4,k80:12/4", a YAML file, or a
// name that the caller defines.
//
// The short form is TYPE:DEVICES/PER_NODE, several separated by commas, with /NODES_PER_RACK appended if racks matter:
// "v100:64/8/4" is eight nodes of eight V100 in two racks. A file is:
//
//	nodes_per_rack: 8        # nodes in order of the file; if omitted, all nodes are in one rack
//	nodes:
//	  - count: 16            # default 1
//	    name: big            # big-01 to big-16; default: the type of its first devices
//	    devices: v100:8      # TYPE:COUNT, or several separated by commas
//	    slots: 4             # groups of devices behind one fast link; default 1
//	    cpus: 64             # default: not checked
//	    memory: 256GiB       # default: not checked
//	    rack: r1             # instead of nodes_per_rack
package clusterspec

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// mostDevices and mostNodes limit the size of a cluster, to catch mistyped numbers.
const (
	mostDevices = 1 << 20
	mostNodes   = 1 << 17
)

// Named are clusters by name, each in short form or as the content of a file.
type Named map[string]string

// Choices describes what Open accepts, for errors.
func (n Named) Choices() string {
	if len(n) == 0 {
		return "a file, or a short form such as v100:12/4"
	}
	return "a file, a short form such as v100:12/4, or one of " + strings.Join(slices.Sorted(maps.Keys(n)), ", ")
}

// Open returns the nodes, sorted by name, of a cluster given by name, in short form, or as a file. Names take
// precedence over files; write ./NAME for a file with such a name. An error describes the problem and its position.
func (n Named) Open(text string) ([]cluster.Node, error) {
	if text == "" {
		return nil, errors.New("the cluster is empty: want " + n.Choices())
	}
	if content, ok := n[text]; ok {
		if strings.Contains(content, "nodes:") {
			return Read([]byte(content), text)
		}
		return Parse(content)
	}
	data, err := os.ReadFile(text)
	switch {
	case err == nil:
		return Read(data, text)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case strings.Contains(text, ":") && !strings.Contains(strings.SplitN(text, ":", 2)[0], "/"):
		return Parse(text)
	}
	return nil, fmt.Errorf("there is no file %s: want %s", text, n.Choices())
}

// Parse parses the short form.
func Parse(text string) ([]cluster.Node, error) {
	var groups []group
	for part := range strings.SplitSeq(text, ",") {
		g, err := parsePart(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		groups = append(groups, g)
	}
	return build(groups)
}

func parsePart(part string) (group, error) {
	bad := func(why string) (group, error) {
		return group{}, fmt.Errorf("cluster %q: %s: want TYPE:DEVICES/PER_NODE, as in v100:12/4", part, why)
	}
	kind, numbers, ok := strings.Cut(part, ":")
	if !ok || kind == "" {
		return bad("the type is missing")
	}
	fields := strings.Split(numbers, "/")
	if len(fields) < 2 || len(fields) > 3 {
		return bad(fmt.Sprintf("%d numbers", len(fields)))
	}
	var n [3]int
	for i, field := range fields {
		v, err := strconv.Atoi(field)
		if err != nil || v < 1 || v > mostDevices {
			return bad(fmt.Sprintf("%q is not a number from 1 to %d", field, mostDevices))
		}
		n[i] = v
	}
	if n[0]%n[1] != 0 {
		return bad(fmt.Sprintf("%d devices do not fill nodes of %d", n[0], n[1]))
	}
	return group{count: n[0] / n[1], name: kind, devices: []stock{{kind, n[1]}}, slots: 1, perRack: n[2]}, nil
}

// stock is a number of devices of a type.
type stock struct {
	kind  string
	count int
}

// group is a number of equal nodes.
type group struct {
	count   int
	name    string
	devices []stock
	slots   int
	cpus    float64
	memory  int64
	// rack is the rack of all of them, or perRack the number in each rack. Without both, they are in the common rack.
	rack    string
	perRack int
}

// build returns the nodes of groups.
func build(groups []group) ([]cluster.Node, error) {
	var nodes []cluster.Node
	total := map[string]int{}
	for _, g := range groups {
		total[g.name] += g.count
	}
	made := map[string]int{}
	racks, inRack, devices := 0, 0, 0
	for _, g := range groups {
		for range g.count {
			made[g.name]++
			n := cluster.Node{
				Name: numbered(g.name, made[g.name], total[g.name]), Rack: g.rack, CPUs: g.cpus, Memory: g.memory, Trusted: true,
				Devices: g.build(),
			}
			if g.perRack > 0 {
				if inRack == 0 || inRack >= g.perRack {
					racks, inRack = racks+1, 0
				}
				inRack++
				n.Rack = fmt.Sprintf("rack-%04d", racks)
			}
			nodes = append(nodes, n)
			if devices += len(n.Devices); devices > mostDevices || len(nodes) > mostNodes {
				return nil, fmt.Errorf("the cluster has more than %d devices or %d nodes", mostDevices, mostNodes)
			}
		}
	}
	slices.SortFunc(nodes, func(a, b cluster.Node) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(nodes); i++ {
		if nodes[i].Name == nodes[i-1].Name {
			return nil, fmt.Errorf("two nodes are named %s: give their groups other names", nodes[i].Name)
		}
	}
	return nodes, nil
}

// numbered names the i-th of n nodes, with leading zeros so that names sort by number.
func numbered(name string, i, n int) string {
	if n == 1 {
		return name
	}
	return fmt.Sprintf("%s-%0*d", name, len(strconv.Itoa(n)), i)
}

func (g *group) build() []cluster.Device {
	var devices []cluster.Device
	size := g.size()
	for _, s := range g.devices {
		for range s.count {
			i := len(devices)
			devices = append(devices, cluster.Device{Index: i, Type: s.kind, Slot: i * g.slots / size, Speed: 1})
		}
	}
	return devices
}

func (g *group) size() int {
	n := 0
	for _, s := range g.devices {
		n += s.count
	}
	return n
}

// Describe describes a cluster in one line: "36 devices on 9 nodes: 12 k80, 12 p100, 12 v100".
func Describe(nodes []cluster.Node) string {
	kinds := map[string]int{}
	devices := 0
	racks := map[string]bool{}
	for _, n := range nodes {
		racks[n.Rack] = true
		for _, d := range n.Devices {
			kinds[d.Type]++
			devices++
		}
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, fmt.Sprintf("%d %s", kinds[kind], kind))
	}
	text := fmt.Sprintf("%d devices on %d nodes: %s", devices, len(nodes), strings.Join(parts, ", "))
	if len(racks) > 1 {
		text += fmt.Sprintf(", in %d racks", len(racks))
	}
	return text
}
