package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// clusterCommands show the nodes of a cluster and check whether everything in it works.
type clusterCommands struct {
	*client
	// version is the version of this build.
	version string
}

func (k *clusterCommands) nodesCommand() *cobra.Command {
	var out format
	var all bool
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "List nodes and the trials that hold their devices, cordon and drain nodes",
		Long: `Nodes lists the machines with a worker, their devices, and which trial holds each device.
Nodes whose workers have left are omitted unless --all is given.`,
		Example: `  outbid nodes
  outbid nodes -o json | jq -r '.[] | select(.state == "lost").name'`,
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := k.connect()
			if err != nil {
				return err
			}
			defer c.close()
			got, err := c.ListNodes(cmd.Context(), &outbidv1.ListNodesRequest{})
			if err != nil {
				return err
			}
			l := newLister(k.stdout, out, []string{"NODE", "STATE", "DEVICES", "FREE", "CPUS", "MEMORY", "VERSION", "RUNS"},
				func(v nodeView) []string {
					types, free, runs := deviceSummary(v.Devices)
					return []string{
						clean(v.Name), nodeWord(v), types, fmt.Sprint(free), formatMetric(float64(v.CPUs)), formatBytes(v.MemoryBytes),
						clean(v.Version), runs,
					}
				})
			l.table.width, l.table.fold, l.table.spare = k.columns(), true, []string{"VERSION", "CPUS", "MEMORY"}
			var notes []string
			for _, n := range got.GetNodes() {
				if !all && n.GetState() == outbidv1.NodeState_NODE_STATE_LEFT {
					continue
				}
				v := viewNode(n)
				if err := l.add(v); err != nil {
					return err
				}
				notes = append(notes, k.nodeNotes(v)...)
			}
			if err := l.close("no nodes; start one with 'outbid worker' ('outbid worker join' first on another machine), or 'outbid up' for all in one"); err != nil || out != formatTable {
				return err
			}
			for _, line := range notes {
				k.printText("%s", line)
			}
			return nil
		},
	}
	outputFlag(cmd, &out)
	cmd.Flags().BoolVar(&all, "all", false, "also show nodes that have left")
	cmd.AddCommand(k.cordonCommand(), k.drainCommand(), k.uncordonCommand())
	return cmd
}

// deviceSummary counts devices by type and the free ones, and names the trials that hold the others.
func deviceSummary(devices []deviceView) (types string, free int, runs string) {
	counts := map[string]int{}
	holders := map[string]bool{}
	for _, d := range devices {
		counts[d.Type]++
		if d.Trial == nil {
			free++
		} else {
			holders[*d.Trial] = true
		}
	}
	var parts []string
	for _, t := range sortedKeys(counts) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[t], clean(t)))
	}
	list := sortedKeys(holders)
	if len(list) > 4 {
		list = append(list[:4], fmt.Sprintf("and %d more", len(list)-4))
	}
	return strings.Join(parts, " + "), free, strings.Join(list, " ")
}

// nodeNotes returns the lines below a listing about a node: why it gets no trials, and its worker's warnings.
func (k *clusterCommands) nodeNotes(n nodeView) []string {
	var lines []string
	for _, o := range n.Faults {
		if o.running {
			lines = append(lines, k.faultLine(n.Name, o))
		}
	}
	for _, w := range n.Warnings {
		lines = append(lines, clean(n.Name)+": "+clean(w))
	}
	return lines
}

// faultLine describes an active fault.
func (k *clusterCommands) faultLine(node string, o faultView) string {
	who := "gets no new trials"
	if o.Sweep != nil {
		who = "gets no new trials of " + clean(*o.Sweep)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s (%s): %s", clean(node), who, o.by(), clean(o.Reason))
	if len(o.Trials) > 0 {
		fmt.Fprintf(&b, "; failed there: %s", clean(strings.Join(o.Trials, " ")))
	}
	switch {
	case o.manual:
		fmt.Fprintf(&b, "; 'outbid nodes uncordon %s' opens it", clean(node))
	case o.Word == "drained":
		b.WriteString("; its trials continue on other nodes")
	case o.Word == "unfit":
		b.WriteString("; it gets trials again when the checks of its worker pass")
	case o.Word == "cordoned":
		fmt.Fprintf(&b, "; it is retried after %s if the checks of its worker pass", k.when(o.Until))
	default:
		fmt.Fprintf(&b, "; it is retried after %s", k.when(o.Until))
	}
	return b.String()
}
