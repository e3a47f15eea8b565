package clusterspec

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"go.yaml.in/yaml/v3"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/spec"
)

// Read parses a file. name is its name in errors, which have the line.
func Read(data []byte, name string) ([]cluster.Node, error) {
	if err := spec.SyntaxError(data); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("%s: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(doc.Content) == 0 {
		return nil, fmt.Errorf("%s: the file is empty: want nodes: and a list", name)
	}
	groups, err := readFile(doc.Content[0])
	var nodes []cluster.Node
	if err == nil {
		nodes, err = build(groups)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return nodes, nil
}

// at returns an error about a line.
func at(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("line %d: "+format, append([]any{n.Line}, args...)...)
}

// fields calls do for a mapping's fields in order.
func fields(n *yaml.Node, what string, names string, do func(key string, value *yaml.Node) error) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		return at(n, "%s: want fields: %s", what, names)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if seen[key.Value] {
			return at(key, "%s is given twice", key.Value)
		}
		seen[key.Value] = true
		if err := do(key.Value, n.Content[i+1]); err != nil {
			if errors.Is(err, errUnknown) {
				return at(key, "there is no field %q: want %s", key.Value, names)
			}
			return err
		}
	}
	return nil
}

var errUnknown = errors.New("unknown field")

func readFile(n *yaml.Node) ([]group, error) {
	var groups []group
	perRack := 0
	var list *yaml.Node
	err := fields(n, "the file", "nodes, nodes_per_rack", func(key string, value *yaml.Node) (err error) {
		switch key {
		case "nodes_per_rack":
			perRack, err = whole(key, value, mostNodes)
		case "nodes":
			list = value
		default:
			err = errUnknown
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if list == nil || list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		return nil, at(n, "nodes: must be a list of nodes")
	}
	for _, item := range list.Content {
		g, err := readGroup(item)
		if err != nil {
			return nil, err
		}
		if g.rack == "" {
			g.perRack = perRack
		}
		groups = append(groups, g)
	}
	return groups, nil
}

func readGroup(n *yaml.Node) (group, error) {
	g := group{count: 1, slots: 1}
	const names = "count, name, devices, slots, cpus, memory, rack"
	err := fields(n, "a node", names, func(key string, value *yaml.Node) (err error) {
		switch key {
		case "count":
			g.count, err = whole(key, value, mostNodes)
		case "name":
			g.name, err = word(key, value)
		case "rack":
			g.rack, err = word(key, value)
		case "devices":
			g.devices, err = readDevices(value)
		case "slots":
			g.slots, err = whole(key, value, mostDevices)
		case "cpus":
			g.cpus, err = number(key, value)
		case "memory":
			g.memory, err = memory(key, value)
		default:
			err = errUnknown
		}
		return err
	})
	switch {
	case err != nil:
		return g, err
	case len(g.devices) == 0:
		return g, at(n, "a node without devices: want devices: TYPE:COUNT")
	case g.size()%g.slots != 0:
		return g, at(n, "slots: %d: the node's %d devices cannot be shared out evenly", g.slots, g.size())
	}
	if g.name == "" {
		g.name = g.devices[0].kind
	}
	return g, nil
}

func readDevices(n *yaml.Node) ([]stock, error) {
	var list []stock
	for part := range strings.SplitSeq(n.Value, ",") {
		kind, count, ok := strings.Cut(strings.TrimSpace(part), ":")
		v, err := strconv.Atoi(count)
		if !ok || kind == "" || err != nil || v < 1 || v > mostDevices || n.Kind != yaml.ScalarNode {
			return nil, at(n, "devices: %q: want TYPE:COUNT, as in v100:4", n.Value)
		}
		list = append(list, stock{kind, v})
	}
	return list, nil
}

func whole(key string, n *yaml.Node, most int) (int, error) {
	v, err := strconv.Atoi(n.Value)
	if err != nil || v < 1 || v > most || n.Kind != yaml.ScalarNode {
		return 0, at(n, "%s: %q: want a whole number from 1 to %d", key, n.Value, most)
	}
	return v, nil
}

func number(key string, n *yaml.Node) (float64, error) {
	v, err := strconv.ParseFloat(n.Value, 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) || n.Kind != yaml.ScalarNode {
		return 0, at(n, "%s: %q: want a number above 0", key, n.Value)
	}
	return v, nil
}

func memory(key string, n *yaml.Node) (int64, error) {
	v, err := humanize.ParseBytes(n.Value)
	if err != nil || v == 0 || v > math.MaxInt64 || n.Kind != yaml.ScalarNode {
		return 0, at(n, "%s: %q: want a size such as 64GiB", key, n.Value)
	}
	return int64(v), nil
}

func word(key string, n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode || n.Value == "" || strings.ContainsAny(n.Value, " \t\n/,") {
		return "", at(n, "%s: %q: want a word without spaces, / and ,", key, n.Value)
	}
	return n.Value, nil
}
