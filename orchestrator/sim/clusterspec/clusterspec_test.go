package clusterspec_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/sim/clusterspec"
)

func TestShortForm(t *testing.T) {
	t.Parallel()
	nodes, err := clusterspec.Named{}.Open("v100:4/2,k80:1/1")
	if err != nil {
		t.Fatal(err)
	}
	two := []cluster.Device{{Index: 0, Type: "v100", Speed: 1}, {Index: 1, Type: "v100", Speed: 1}}
	want := []cluster.Node{
		{Name: "k80", Trusted: true, Devices: []cluster.Device{{Type: "k80", Speed: 1}}},
		{Name: "v100-1", Trusted: true, Devices: two},
		{Name: "v100-2", Trusted: true, Devices: two},
	}
	if diff := cmp.Diff(want, nodes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, want := clusterspec.Describe(nodes), "5 devices on 3 nodes: 1 k80, 4 v100"; got != want {
		t.Errorf("described as %q, want %q", got, want)
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cluster.yaml")
	text := `
nodes_per_rack: 2
nodes:
  - count: 3
    name: big
    devices: v100:4
    slots: 2
    cpus: 8
    memory: 64GiB
  - {devices: "k80:1, t4:1", rack: attic}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	nodes, err := clusterspec.Named{}.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, n := range nodes {
		line := n.Name + " " + n.Rack
		for _, d := range n.Devices {
			line += " " + d.Type + string(rune('a'+d.Slot))
		}
		lines = append(lines, line)
	}
	want := []string{
		"big-1 rack-0001 v100a v100a v100b v100b", "big-2 rack-0001 v100a v100a v100b v100b",
		"big-3 rack-0002 v100a v100a v100b v100b", "k80 attic k80a t4a",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if nodes[0].CPUs != 8 || nodes[0].Memory != 64<<30 {
		t.Errorf("%+v", nodes[0])
	}
}

func TestNamedClustersComeBeforeFiles(t *testing.T) {
	t.Parallel()
	named := clusterspec.Named{"small": "v100:4/2", "file": "nodes: [{devices: \"k80:3\"}]"}
	for name, want := range map[string]string{"small": "4 devices on 2 nodes: 4 v100", "file": "3 devices on 1 nodes: 3 k80", "k80:1/1": "1 devices on 1 nodes: 1 k80"} {
		if nodes, err := named.Open(name); err != nil || clusterspec.Describe(nodes) != want {
			t.Errorf("%s: %v, %v", name, nodes, err)
		}
	}
	if _, err := named.Open("other"); err == nil || !strings.HasSuffix(err.Error(), "or one of file, small") {
		t.Errorf("error %v", err)
	}
}

func TestBadClusters(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{
		{"", "the cluster is empty"},
		{"nothing", "there is no file nothing: want a file, or a short form such as v100:12/4"},
		{"v100:12", "1 numbers: want TYPE:DEVICES/PER_NODE, as in v100:12/4"},
		{"v100:12/5", "12 devices do not fill nodes of 5"},
		{"v100:0/4", `"0" is not a number from 1 to 1048576`},
		{"v100:12/4,", "the type is missing"},
		{":12/4", "the type is missing"},
		{"v100:8/4,v100:8/4/2,gpu:1/1/1/1", "4 numbers"},
		{"a:1048576/1,b:8/8", "more than 1048576 devices or 131072 nodes"},
	} {
		if _, err := (clusterspec.Named{}).Open(c[0]); err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%q: error %v, want %q", c[0], err, c[1])
		}
	}
	for _, c := range [][2]string{
		{"", "c.yaml: the file is empty"},
		{"a: [", "c.yaml: line 1, column 1: did not find expected node content"},
		{"nodes:\n  - devices: v100:4\n   count: 2\n", "c.yaml: line 3, column 4: did not find expected '-' indicator"},
		{"- 1", "c.yaml: line 1: the file: want fields: nodes, nodes_per_rack"},
		{"nodes: 5", "nodes: must be a list of nodes"},
		{"nodes:\n  - devices: v100", `line 2: devices: "v100": want TYPE:COUNT, as in v100:4`},
		{"nodes:\n  - count: 2", "line 2: a node without devices"},
		{"nodes:\n  - devices: v100:4\n    count: -1", `line 3: count: "-1": want a whole number from 1 to 131072`},
		{"nodes:\n  - devices: v100:4\n    slots: 3", "slots: 3: the node's 4 devices cannot be shared out evenly"},
		{"nodes:\n  - devices: v100:4\n    gpus: 3", `line 3: there is no field "gpus": want count, name,`},
		{"nodes:\n  - devices: v100:4\n    memory: lots", `line 3: memory: "lots": want a size such as 64GiB`},
		{"nodes:\n  - devices: v100:4\n    cpus: .nan", `cpus: ".nan": want a number above 0`},
		{"nodes:\n  - devices: v100:4\n    name: a b", `name: "a b": want a word`},
		{"nodes:\n  - {devices: \"v100:4\", name: v-1}\n  - {devices: \"v100:4\", name: v, count: 2}", "two nodes are named v-1"},
		{"nodes:\n  - devices: v100:4\n    devices: v100:4", "line 3: devices is given twice"},
	} {
		if _, err := clusterspec.Read([]byte(c[0]), "c.yaml"); err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%q: error %v, want %q", c[0], err, c[1])
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("nodes:\n  - {count: 2, devices: \"v100:4\", slots: 2}\nnodes_per_rack: 1\n"))
	f.Add([]byte("nodes: [{devices: a:1}]"))
	f.Add([]byte("nodes: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		nodes, err := clusterspec.Read(data, "c")
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, n := range nodes {
			if len(n.Devices) == 0 || seen[n.Name] {
				t.Fatalf("%q gives %+v", data, n)
			}
			seen[n.Name] = true
		}
	})
}
