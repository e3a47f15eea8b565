package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// drainDeadline is how long a drain waits by default. A trial that cannot save in time is ended by its worker.
	drainDeadline = 10 * time.Minute
	// drainLook is how often a drain looks whether trials still hold the node.
	drainLook = 300 * time.Millisecond
	// evictWithin is how long a forced drain then waits: a worker kills a trial that does not stop after 15 s, and a worker
	// that is not heard loses its trials after its lease.
	evictWithin = 2 * time.Minute
)

// nodeControl has the flags of the commands that control nodes.
type nodeControl struct {
	reason   string
	deadline time.Duration
	detach   bool
	force    bool
}

func (k *clusterCommands) cordonCommand() *cobra.Command {
	return k.controlCommand(outbidv1.NodeCommand_NODE_COMMAND_CORDON, &cobra.Command{
		Use:   "cordon NODE",
		Short: "Place no new trials on a node",
		Long: `Cordon keeps new trials off a node until 'outbid nodes uncordon'. Trials that run there continue. A node stays
cordoned if its worker restarts. It requires the role admin or operator.`,
		Example: `  outbid nodes cordon gpu-7 --reason "fan replaced on Friday"`,
	})
}

func (k *clusterCommands) drainCommand() *cobra.Command {
	return k.controlCommand(outbidv1.NodeCommand_NODE_COMMAND_DRAIN, &cobra.Command{
		Use:   "drain NODE",
		Short: "Move the trials of a node away, and place no new ones on it",
		Long: `Drain cordons a node, and asks the trials that run there to save and end. They continue on other nodes, or wait for
one. The command ends when no trial holds the node any more; with --detach it does not wait.

If --deadline is over before, it names the trials that are left and fails. With --force it then ends them without
saving, and waits until the node is empty: they continue elsewhere from their last checkpoints. The node stays closed
until 'outbid nodes uncordon'. It requires the role admin or operator.`,
		Example: `  outbid nodes drain gpu-7 --reason "kernel update" && ssh gpu-7 reboot
  outbid nodes drain gpu-7 --deadline 1h --force`,
	})
}

func (k *clusterCommands) uncordonCommand() *cobra.Command {
	return k.controlCommand(outbidv1.NodeCommand_NODE_COMMAND_UNCORDON, &cobra.Command{
		Use:   "uncordon NODE",
		Short: "Place trials on a node again",
		Long: `Uncordon opens a node that was cordoned or drained. It also forgets the failures for which the server avoided the node.
What the node's worker reports itself, such as a full disk, remains. It requires the role admin or operator.`,
		Example: "  outbid nodes uncordon gpu-7",
	})
}

// controlCommand completes a command that controls a node.
func (k *clusterCommands) controlCommand(command outbidv1.NodeCommand, cmd *cobra.Command) *cobra.Command {
	var o nodeControl
	cmd.Args = exactArgs("NODE")
	cmd.ValidArgsFunction = k.completeNodes
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return k.control(cmd.Context(), args[0], command, o) }
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, in one line, for those who ask why the node gets no trials")
	if command == outbidv1.NodeCommand_NODE_COMMAND_DRAIN {
		cmd.Flags().DurationVar(&o.deadline, "deadline", drainDeadline, "how long to wait for the trials on the node")
		cmd.Flags().BoolVar(&o.force, "force", false, "after the deadline end the trials that are left; they continue from their last checkpoints")
		cmd.Flags().BoolVar(&o.detach, "detach", false, "do not wait for the trials on the node")
	}
	return cmd
}

func (k *clusterCommands) completeNodes(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := k.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.close()
	got, err := c.ListNodes(cmd.Context(), &outbidv1.ListNodesRequest{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, n := range got.GetNodes() {
		names = append(names, n.GetInfo().GetName())
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (k *clusterCommands) control(ctx context.Context, node string, command outbidv1.NodeCommand, o nodeControl) error {
	if command == outbidv1.NodeCommand_NODE_COMMAND_DRAIN && o.deadline <= 0 {
		return badInput("--deadline %s: want more than 0; --detach does not wait", o.deadline)
	}
	if o.force && o.detach {
		return badInput("--force with --detach: nothing would wait for the deadline")
	}
	c, err := k.connect()
	if err != nil {
		return err
	}
	defer c.close()
	resp, err := c.ControlNode(ctx, &outbidv1.ControlNodeRequest{Node: node, Command: command, Reason: o.reason})
	if err != nil {
		return err
	}
	switch {
	case command == outbidv1.NodeCommand_NODE_COMMAND_UNCORDON:
		k.printf("%s gets trials again\n", clean(node))
	case command == outbidv1.NodeCommand_NODE_COMMAND_CORDON:
		k.printf("%s gets no new trials; %s there\n", clean(node), stillRun(trialsOn(resp.GetNode())))
	case o.detach:
		left := trialsOn(resp.GetNode())
		k.printf("%s gets no new trials; %s there%s\n", clean(node), stillRun(left), ending(left))
	default:
		return k.awaitDrain(ctx, c, node, o)
	}
	return nil
}

// awaitDrain waits until no trial holds a node. After the deadline it evicts the trials that are left, or fails.
func (k *clusterCommands) awaitDrain(ctx context.Context, c *connection, node string, o nodeControl) error {
	left, err := k.awaitEmpty(ctx, c, node, o.deadline)
	if err == nil && len(left) > 0 && o.force {
		k.notef("%s: %s did not save in time, and are ended", clean(node), strings.Join(left, ", "))
		evict := &outbidv1.ControlNodeRequest{Node: node, Command: outbidv1.NodeCommand_NODE_COMMAND_EVICT, Reason: o.reason}
		if _, err := c.ControlNode(ctx, evict); err != nil {
			return err
		}
		left, err = k.awaitEmpty(ctx, c, node, evictWithin)
	}
	switch {
	case err != nil:
		return err
	case len(left) > 0:
		return fmt.Errorf("%s still run on %s after %s; it stays closed: run the command again (--force ends them), stop them, or "+
			"open the node with 'outbid nodes uncordon %s'", strings.Join(left, ", "), clean(node), o.deadline, clean(node))
	}
	k.printf("%s is drained\n", clean(node))
	return nil
}

// awaitEmpty waits until no trial holds a node, and returns those that do when the time is over.
func (k *clusterCommands) awaitEmpty(ctx context.Context, c *connection, node string, within time.Duration) (left []string, err error) {
	over := time.NewTimer(within)
	defer over.Stop()
	look := time.NewTicker(drainLook)
	defer look.Stop()
	told := ""
	for {
		got, err := c.ListNodes(ctx, &outbidv1.ListNodesRequest{})
		if err != nil {
			return nil, err
		}
		left = nil
		for _, n := range got.GetNodes() {
			if n.GetInfo().GetName() == node {
				left = trialsOn(n)
			}
		}
		if len(left) == 0 {
			return nil, nil
		}
		if now := stillRun(left); now != told {
			told = now
			k.notef("%s on %s", now, clean(node))
		}
		select {
		case <-look.C:
		case <-over.C:
			return left, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// ending describes the end of the trials that a drain left behind.
func ending(left []string) string {
	if len(left) == 0 {
		return ""
	}
	return " until they have saved"
}

// trialsOn returns the trials that hold devices of a node.
func trialsOn(n *outbidv1.Node) []string {
	seen := map[string]bool{}
	for _, u := range n.GetUses() {
		if f := u.GetFork(); f.GetSweep() != "" {
			seen[fmt.Sprintf("%s/%d", clean(f.GetSweep()), f.GetTrial())] = true
		}
	}
	return sortedKeys(seen)
}

// stillRun says which trials run somewhere.
func stillRun(names []string) string {
	switch len(names) {
	case 0:
		return "no trials run"
	case 1:
		return "1 trial runs (" + names[0] + ")"
	}
	shown := names[:min(len(names), 8)]
	more := ""
	if len(names) > len(shown) {
		more = ", …"
	}
	return fmt.Sprintf("%d trials run (%s%s)", len(names), strings.Join(shown, ", "), more)
}
