package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (a *app) deleteCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "delete SWEEP",
		Short: "Delete a sweep that has ended, with its checkpoints, logs and reports",
		Long: `Delete forgets a sweep that has ended: its checkpoints, what its trials printed and reported, and its function, if no
other sweep uses that, are deleted for good. What happened stays in the ledger. The sweep is named in full, as digits-2;
its name goes on counting, so that no other sweep gets the same.

With --force a sweep that has not ended is stopped first.`,
		Example: `  outbid delete digits-2
  outbid delete digits-2 --force`,
		Args: exactly("SWEEP"),
		ValidArgsFunction: a.completeSweeps(outbidv1.SweepState_SWEEP_STATE_DONE, outbidv1.SweepState_SWEEP_STATE_STOPPED,
			outbidv1.SweepState_SWEEP_STATE_FAILED),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := sweepOnly(args[0])
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			got, err := c.DeleteSweep(cmd.Context(), &outbidv1.DeleteSweepRequest{Sweep: r.sweep, Force: force})
			if err != nil {
				return c.nameInFull(cmd.Context(), r.sweep, err)
			}
			a.printf("%s was deleted by %s at %s\n", r.sweep, got.GetActor(), got.GetDeleted().AsTime().In(a.now().Location()).
				Format(time.DateTime))
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "stop the sweep first if it has not ended")
	return cmd
}

// nameInFull says what the full name of a sweep is if there is none of that very name.
func (c *connection) nameInFull(ctx context.Context, name string, err error) error {
	if sweep, findErr := c.find(ctx, name); findErr == nil && sweep.GetId() != name {
		return badInput("%q is no full name of a sweep, and what is deleted is gone: name it in full, such as %s", name,
			sweep.GetId())
	}
	return err
}
