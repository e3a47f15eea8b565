package cli

import (
	"github.com/spf13/cobra"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (a *app) tenantCommand() *cobra.Command {
	return groupCommand(&cobra.Command{
		Use:   "tenant",
		Short: "Add, change and list tenants: weights, quotas, limits, who acts for them",
		Long: `Tenants own sweeps. One that nobody added has weight 1, no quota and the server's usual limits (serve --limits).
What is set here holds at once: a sweep that could never run within its tenant's quota is refused, no policy gives a
tenant's trials more than its quota, and what they hold beyond a quota that was lowered is taken back after they saved.
Changing tenants takes an admin's token.`,
		Example: "  outbid tenant add vision --weight 2 --devices 16 --quota v100=8",
	}, a.tenantAddCommand(), a.tenantSetCommand(), a.tenantListCommand(), a.tenantShowCommand(), a.tenantRemoveCommand())
}

func (a *app) tenantAddCommand() *cobra.Command {
	var o tenantFlags
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a tenant",
		Long: `Add sets what a tenant may have; what no flag names is as the server's file of limits says (serve --limits), or its
default. It takes an admin's token.`,
		Example: "  outbid tenant add vision --weight 2 --devices 16 --quota v100=8 --sweeps 20 --device-hours 2000",
		Args:    exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t := &outbidv1.Tenant{Name: args[0], Weight: 1}
			if err := o.onto(t, cmd.Flags()); err != nil {
				return err
			}
			return a.setTenant(cmd, t, true)
		},
	}
	o.add(cmd.Flags())
	return cmd
}

func (a *app) tenantSetCommand() *cobra.Command {
	var o tenantFlags
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Change a tenant; what no flag names stays",
		Long: `Set changes what a tenant may have, at once: what its trials hold beyond a quota is taken back after they saved.
none takes a bound away, and default takes back what was set for a limit. It takes an admin's token.`,
		Example: "  outbid tenant set vision --quota v100=4 --quota a100=none --device-hours none",
		Args:    exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			got, err := c.GetTenant(cmd.Context(), &outbidv1.GetTenantRequest{Tenant: args[0]})
			if err != nil {
				return err
			}
			if err := o.onto(got.GetTenant().GetTenant(), cmd.Flags()); err != nil {
				return err
			}
			return a.setTenant(cmd, got.GetTenant().GetTenant(), false)
		},
	}
	o.add(cmd.Flags())
	return cmd
}

func (a *app) setTenant(cmd *cobra.Command, t *outbidv1.Tenant, add bool) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.close()
	got, err := c.SetTenant(cmd.Context(), &outbidv1.SetTenantRequest{Tenant: t, Add: add})
	if err != nil {
		return err
	}
	return a.printTenants(formatTable, got.GetTenant())
}

func (a *app) tenantListCommand() *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List tenants with what they may have and what they have",
		Long: `List shows the tenants for which the caller may act: weights, sweeps that have not ended, devices held and their
quota by type, and device-hours of this calendar month (UTC), each with its limit.`,
		Example:           "  outbid tenant list -o json | jq '.[] | {name, held, device_hours}'",
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			got, err := c.ListTenants(cmd.Context(), &outbidv1.ListTenantsRequest{})
			if err != nil {
				return err
			}
			return a.printTenants(out, got.GetTenants()...)
		},
	}
	outputFlag(cmd, &out)
	return cmd
}

func (a *app) tenantShowCommand() *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show one tenant, each of its limits, and what happens when it is reached",
		Long: `Show prints what a tenant may have and what it has, one limit a line. The limits are those that are in force: what was
set for it with 'outbid tenant set', else what the server's file of limits says (serve --limits), else the default.`,
		Example: "  outbid tenant show vision",
		Args:    exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			got, err := c.GetTenant(cmd.Context(), &outbidv1.GetTenantRequest{Tenant: args[0]})
			if err != nil {
				return err
			}
			return a.showTenant(out, got.GetTenant())
		},
	}
	outputFlag(cmd, &out)
	return cmd
}

func (a *app) tenantRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Forget what was set for a tenant whose sweeps have all ended",
		Long: `Remove forgets a tenant's weight, quota, limits and members. Its sweeps stay, and must have ended. Its secrets
stay too, and belong to the next tenant of that name: the command prints how many there are, and 'outbid secret remove'
removes them. It takes an admin's token.`,
		Example: "  outbid tenant remove vision",
		Args:    exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			if _, err := c.RemoveTenant(cmd.Context(), &outbidv1.RemoveTenantRequest{Tenant: args[0]}); err != nil {
				return err
			}
			a.printf("%s has no settings any more\n", args[0])
			kept, err := c.ListSecrets(cmd.Context(), &outbidv1.ListSecretsRequest{Tenant: args[0]})
			if n := len(kept.GetSecrets()); err == nil && n > 0 { // an older server keeps none
				a.notef("%d of its secrets stay: 'outbid secret list --tenant %s' names them, 'outbid secret remove' removes them", n, args[0])
			}
			return nil
		},
	}
}
