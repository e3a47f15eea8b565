package cli

import (
	"github.com/spf13/cobra"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// tenantCommands manage tenants and their secrets.
type tenantCommands struct{ *client }

func (tn *tenantCommands) tenantCommand() *cobra.Command {
	return groupCommand(&cobra.Command{
		Use:   "tenant",
		Short: "Add, change and list tenants: weights, quotas, limits and members",
		Long: `Tenants own sweeps. A tenant that was not added has weight 1, no quota and the server's default limits (serve --limits).
Changes take effect at once: a sweep that could never run within its tenant's quota is rejected, and no policy gives a
tenant's trials more than its quota. After a quota is lowered, trials above it save and release their devices. Changing
tenants requires the role admin; a tenant-admin may set the members of its tenant.`,
		Example: "  outbid tenant add vision --weight 2 --devices 16 --quota v100=8",
	}, tn.tenantAddCommand(), tn.tenantSetCommand(), tn.tenantListCommand(), tn.tenantShowCommand(), tn.tenantRemoveCommand())
}

func (tn *tenantCommands) tenantAddCommand() *cobra.Command {
	var o tenantFlags
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a tenant",
		Long: `Add adds a tenant with its weight, quotas, limits and members. Limits without a flag come from the server's limits file
(serve --limits), or are the defaults. It requires an admin's token.`,
		Example: "  outbid tenant add vision --weight 2 --devices 16 --quota v100=8 --sweeps 20 --device-hours 2000",
		Args:    exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t := &outbidv1.Tenant{Name: args[0], Weight: 1}
			if err := o.applyTo(t, cmd.Flags()); err != nil {
				return err
			}
			return tn.setTenant(cmd, t, true)
		},
	}
	o.add(cmd.Flags())
	return cmd
}

func (tn *tenantCommands) tenantSetCommand() *cobra.Command {
	var o tenantFlags
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Change the given settings of a tenant",
		Long: `Set changes a tenant's weight, quotas, limits and members at once. Trials above a lowered quota save and release their
devices. The value none removes a limit, and default restores its default. It requires the role admin, or
tenant-admin if only --member is given.`,
		Example: "  outbid tenant set vision --quota v100=4 --quota a100=none --device-hours none",
		Args:    exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := tn.connect()
			if err != nil {
				return err
			}
			defer c.close()
			got, err := c.GetTenant(cmd.Context(), &outbidv1.GetTenantRequest{Tenant: args[0]})
			if err != nil {
				return err
			}
			if err := o.applyTo(got.GetTenant().GetTenant(), cmd.Flags()); err != nil {
				return err
			}
			return tn.setTenant(cmd, got.GetTenant().GetTenant(), false)
		},
	}
	o.add(cmd.Flags())
	return cmd
}

func (tn *tenantCommands) setTenant(cmd *cobra.Command, t *outbidv1.Tenant, add bool) error {
	c, err := tn.connect()
	if err != nil {
		return err
	}
	defer c.close()
	got, err := c.SetTenant(cmd.Context(), &outbidv1.SetTenantRequest{Tenant: t, Add: add})
	if err != nil {
		return err
	}
	return tn.printTenants(formatTable, got.GetTenant())
}

func (tn *tenantCommands) tenantListCommand() *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List tenants with their limits and usage",
		Long: `List shows the tenants for which the caller may act: weights, sweeps that have not ended, devices held and their
quota by type, and device-hours of this calendar month (UTC), each with its limit.`,
		Example:           "  outbid tenant list -o json | jq '.[] | {name, held, device_hours}'",
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := tn.connect()
			if err != nil {
				return err
			}
			defer c.close()
			got, err := c.ListTenants(cmd.Context(), &outbidv1.ListTenantsRequest{})
			if err != nil {
				return err
			}
			return tn.printTenants(out, got.GetTenants()...)
		},
	}
	outputFlag(cmd, &out)
	return cmd
}

func (tn *tenantCommands) tenantShowCommand() *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show one tenant, each of its limits, and what happens when it is reached",
		Long: `Show prints a tenant, and each of its limits with its use. A limit comes from 'outbid tenant set', or else from the
server's limits file (serve --limits), or else is the default.`,
		Example: "  outbid tenant show vision",
		Args:    exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := tn.connect()
			if err != nil {
				return err
			}
			defer c.close()
			got, err := c.GetTenant(cmd.Context(), &outbidv1.GetTenantRequest{Tenant: args[0]})
			if err != nil {
				return err
			}
			return tn.showTenant(out, got.GetTenant())
		},
	}
	outputFlag(cmd, &out)
	return cmd
}

func (tn *tenantCommands) tenantRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove the settings of a tenant whose sweeps have all ended",
		Long: `Remove removes a tenant's weight, quota, limits and members. Its sweeps must have ended, and are kept. Its secrets are
also kept, and belong to the next tenant of that name: the command prints their number, and 'outbid secret remove'
removes them. It requires an admin's token.`,
		Example: "  outbid tenant remove vision",
		Args:    exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := tn.connect()
			if err != nil {
				return err
			}
			defer c.close()
			if _, err := c.RemoveTenant(cmd.Context(), &outbidv1.RemoveTenantRequest{Tenant: args[0]}); err != nil {
				return err
			}
			tn.printf("%s no longer has settings\n", args[0])
			kept, err := c.ListSecrets(cmd.Context(), &outbidv1.ListSecretsRequest{Tenant: args[0]})
			if n := len(kept.GetSecrets()); err == nil && n > 0 {
				tn.notef("%d of its secrets remain: 'outbid secret list --tenant %s' lists them, 'outbid secret remove' removes them", n, args[0])
			}
			return nil
		},
	}
}
