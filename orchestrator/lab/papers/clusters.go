package papers

import (
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/sim/clusterspec"
)

// Clusters returns the clusters that papers use.
func Clusters() clusterspec.Named {
	return clusterspec.Named{
		"astraea-philly": "gpu:1680/8",
		"astraea-venus":  "gpu:800/8",
		"gavel":          "v100:36/4,p100:36/4,k80:36/4",
		"gavel-36":       "v100:12/4,p100:12/4,k80:12/4",
		"hadar":          "v100:20/4,p100:20/4,k80:20/4",
		"hadar-example":  "v100:2/2,p100:3/3,k80:1/1",
		"hadare-aws":     "v100:1/1,k80:2/1,t4:2/1",
		"hadare-lab":     "titan-rtx:1/1,t4:1/1,t400:1/1,rtx-3090:1/1,rtx-a2000:1/1",
		"shockwave":      "v100:32/4",
		"themis":         themisMachines(16, 6, 16),
		"themis-256":     themisMachines(24, 12, 16),
		"themis-84":      themisMachines(8, 3, 8),
		"themis-42":      themisMachines(4, 1, 6),
		"themis-21": `
nodes:
  - {count: 2, name: big, devices: "gpu:8", slots: 4}
  - {count: 1, name: middle, devices: "gpu:4", slots: 4}
  - {count: 1, name: small, devices: "gpu:1"}
`,
		"themis-testbed": `
nodes:
  - {count: 12, name: big, devices: "gpu:4"}
  - {count: 8, name: small, devices: "gpu:2"}
`,
	}
}

// themisMachines returns a cluster with these numbers of machines with eight, four and one device: the one that
// Themis's paper simulates, and others with a similar mix.
func themisMachines(big, middle, small int) string {
	return fmt.Sprintf(`
nodes_per_rack: 8
nodes:
  - {count: %d, name: big, devices: "gpu:8", slots: 4}
  - {count: %d, name: middle, devices: "gpu:4", slots: 4}
  - {count: %d, name: small, devices: "gpu:1"}
`, big, middle, small)
}
