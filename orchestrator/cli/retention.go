package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// retentionCommands delete what is older than the retention of its tenant.
type retentionCommands struct{ *client }

func (r *retentionCommands) retentionCommand() *cobra.Command {
	return groupCommand(&cobra.Command{
		Use:   "retention",
		Short: "Delete sweeps that ended longer ago than their tenant keeps them",
		Long: `Retention deletes sweeps that ended longer ago than their tenant keeps them. Set that by 'outbid tenant set NAME
--retain-sweeps TIME', or by retain_sweeps in the file of 'outbid serve --limits'. By default sweeps are kept for ever.`,
		Example: "  outbid retention run --dry-run",
	}, r.runCommand())
}

// expiredView is a line of `retention run`.
type expiredView struct {
	Tenant string    `json:"tenant" doc:"tenant of the sweep"`
	Sweep  string    `json:"sweep" doc:"the sweep"`
	Ended  time.Time `json:"ended" doc:"when it ended"`
	Retain string    `json:"retain" doc:"the retention of the tenant, such as 90d"`
	Bytes  int64     `json:"bytes" doc:"size of its checkpoints and reports"`
	Action string    `json:"action" doc:"delete (dry run), deleted, kept or failed"`
	Reason string    `json:"reason" doc:"why"`
}

func (r *retentionCommands) runCommand() *cobra.Command {
	var out format
	var tenant string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Delete expired sweeps now, or list them",
		Long: `Run deletes the sweeps that ended longer ago than their tenant keeps them, with their checkpoints, output and reports.
The server does the same every minute. With --dry-run it only lists them, in the order of deletion.

A sweep with a soup is kept, and a sweep that runs again is not touched. Each deletion is recorded in the ledger and in
the audit. It requires the role admin, or tenant-admin for the own tenant.`,
		Example: `  outbid retention run --dry-run
  outbid retention run --tenant vision -o json`,
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := r.connect()
			if err != nil {
				return err
			}
			defer c.close()
			got, err := c.RunRetention(cmd.Context(), &outbidv1.RunRetentionRequest{Tenant: tenant, DryRun: dryRun})
			if err != nil {
				return err
			}
			return r.showExpired(out, got, dryRun)
		},
	}
	outputFlag(cmd, &out)
	f := cmd.Flags()
	f.StringVar(&tenant, "tenant", "", "`NAME` of the tenant (default: yours; for admins every tenant)")
	f.BoolVar(&dryRun, "dry-run", false, "list what would be deleted, and delete nothing")
	return cmd
}

// showExpired prints what was or would be deleted, and fails if a deletion failed.
func (r *retentionCommands) showExpired(out format, got *outbidv1.RunRetentionResponse, dryRun bool) error {
	l := newLister(r.stdout, out, []string{"ACTION", "TENANT", "SWEEP", "ENDED", "BYTES", "WHY"}, func(v expiredView) []string {
		return []string{
			v.Action, clean(v.Tenant), clean(v.Sweep), v.Ended.In(r.now().Location()).Format(time.DateTime), formatBytes(v.Bytes), clean(v.Reason),
		}
	})
	l.table.width = r.columns()
	add := func(e *outbidv1.Expired, action, reason string) error {
		return l.add(expiredView{e.GetTenant(), e.GetSweep(), e.GetEnded().AsTime(), e.GetRetain(), e.GetBytes(), action, reason})
	}
	failed, bytes := 0, int64(0)
	for _, e := range got.GetExpired() {
		action, reason := "deleted", e.GetReason()
		switch {
		case dryRun:
			action = "delete"
		case e.GetError() != "":
			action, reason = "failed", e.GetError()
			failed++
		}
		bytes += e.GetBytes()
		if err := add(e, action, reason); err != nil {
			return err
		}
	}
	for _, e := range got.GetKept() {
		if err := add(e, "kept", e.GetReason()); err != nil {
			return err
		}
	}
	if err := l.close("nothing has expired"); err != nil {
		return err
	}
	if n := len(got.GetExpired()); out == formatTable && n > 0 {
		r.notef("%s: %d, with %s", map[bool]string{true: "sweeps to delete", false: "expired sweeps"}[dryRun], n, formatBytes(bytes))
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d sweeps could not be deleted; the server tries again every minute", failed, len(got.GetExpired()))
	}
	return nil
}
