package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (sw *sweepCommands) deleteCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "delete SWEEP",
		Short: "Delete a sweep that has ended, with its checkpoints, logs and reports",
		Long: `Delete removes a sweep that has ended. It deletes its checkpoints, logs and reports, and its function if no other sweep
uses it. The sweep's events stay in the ledger. Give the full id, such as digits-2; it is not used again.

With --force a sweep that has not ended is stopped first.`,
		Example: `  outbid delete digits-2
  outbid delete digits-2 --force`,
		Args: exactArgs("SWEEP"),
		ValidArgsFunction: sw.completeSweeps(outbidv1.SweepState_SWEEP_STATE_DONE, outbidv1.SweepState_SWEEP_STATE_STOPPED,
			outbidv1.SweepState_SWEEP_STATE_FAILED),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := sweepOnly(args[0])
			if err != nil {
				return err
			}
			c, err := sw.connect()
			if err != nil {
				return err
			}
			defer c.close()
			got, err := c.DeleteSweep(cmd.Context(), &outbidv1.DeleteSweepRequest{Sweep: r.sweep, Force: force})
			if err != nil {
				return c.nameInFull(cmd.Context(), r.sweep, err)
			}
			sw.printf("%s was deleted by %s at %s\n", r.sweep, got.GetActor(), got.GetDeleted().AsTime().In(sw.now().Location()).
				Format(time.DateTime))
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "stop the sweep first if it has not ended")
	return cmd
}

// nameInFull returns an error that suggests the full name if name is only the short name of a sweep; otherwise it
// returns err.
func (c *connection) nameInFull(ctx context.Context, name string, err error) error {
	if sweep, findErr := c.find(ctx, name); findErr == nil && sweep.GetId() != name {
		return badInput("%q is not the full id of a sweep, and a deletion is final: give the full id, such as %s", name,
			sweep.GetId())
	}
	return err
}
