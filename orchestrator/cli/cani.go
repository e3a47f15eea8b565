package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/api"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// accessCommands say what a caller may do.
type accessCommands struct{ *client }

func (a *accessCommands) authCommand() *cobra.Command {
	return groupCommand(&cobra.Command{
		Use:     "auth",
		Short:   "Show what you may do on the server",
		Long:    "Auth shows what you may do on the server, and why.",
		Example: "  outbid auth can-i delete digits-1",
	}, a.canICommand())
}

// accessView is the output of `auth can-i -o json`.
type accessView struct {
	Allowed     bool                           `json:"allowed" doc:"whether every call of the list is allowed"`
	Name        string                         `json:"name" doc:"for whom the answer is"`
	Tenant      string                         `json:"tenant" doc:"tenant of that caller, or * for every tenant"`
	Role        string                         `json:"role" doc:"role of that caller"`
	Scopes      []string                       `json:"scopes" doc:"scopes of an API token; empty for every scope"`
	Permissions messages[*outbidv1.Permission] `json:"permissions" doc:"the calls"`
}

// canIFlags has the flags of can-i.
type canIFlags struct {
	out                  format
	tenant, as, asTenant string
	list                 bool
}

func (a *accessCommands) canICommand() *cobra.Command {
	var o canIFlags
	cmd := &cobra.Command{
		Use:   "can-i VERB|CALL [SWEEP|NODE|RESOURCE[/NAME]]",
		Short: "Check whether you may make a call",
		Long: `Can-i asks the server whether you may make a call, and prints the role or scope that allows it, or what is missing. The
server decides as for the call itself, without making it. The exit code is 0 for yes and 1 for no.

VERB is delete, update, list and so on with a sweep, a node or a resource such as tokens; or the name of a command, such
as submit, stop, logs or drain. CALL is a call of the API, such as DeleteSweep. With --list it prints every call that
you may make.

Admins and auditors may ask for a role or for the holder of a token with --as.`,
		Example: `  outbid auth can-i delete digits-1
  outbid auth can-i drain gpu-7
  outbid auth can-i create tokens --tenant vision
  outbid auth can-i --list
  outbid auth can-i logs digits-1 --as auditor`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := o.request(args)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			got, err := c.CheckAccess(cmd.Context(), req)
			if err != nil {
				return err
			}
			if err := a.showAccess(o, got); err != nil || o.list || got.GetAllowed() {
				return err
			}
			return exitSilently(exitFailed)
		},
	}
	outputFlag(cmd, &o.out)
	f := cmd.Flags()
	f.StringVar(&o.tenant, "tenant", "", "`NAME` of the tenant in which you would act")
	f.StringVar(&o.as, "as", "", "ask for a `ROLE` or the name of a token")
	f.StringVar(&o.asTenant, "as-tenant", "", "`NAME` of the tenant of that role (default: that of --tenant, or every tenant)")
	f.BoolVar(&o.list, "list", false, "print every call that is allowed")
	var roles []string
	for _, role := range api.Roles() {
		roles = append(roles, string(role))
	}
	complete(cmd, "as", roles...)
	return cmd
}

// request returns the question that the flags and arguments ask.
func (o *canIFlags) request(args []string) (*outbidv1.CheckAccessRequest, error) {
	req := &outbidv1.CheckAccessRequest{Tenant: o.tenant, As: o.as, AsTenant: o.asTenant}
	switch {
	case o.list && len(args) > 0:
		return nil, badInput("--list: takes no verb")
	case o.list:
		return req, nil
	case len(args) == 0:
		return nil, badInput("give a verb or a call, or --list (see 'outbid auth can-i --help')")
	case len(args) > 2:
		return nil, badInput("unexpected argument %q", args[2])
	}
	req.Verb = args[0]
	if len(args) == 2 {
		resource, name, isPair := strings.Cut(args[1], "/")
		switch {
		case slices.Contains(api.Resources(), resource):
			req.Resource, req.Name = resource, name
		case isPair: // a trial
			req.Name = resource
		default:
			req.Name = args[1]
		}
	}
	return req, nil
}

// showAccess prints an answer.
func (a *accessCommands) showAccess(o canIFlags, got *outbidv1.CheckAccessResponse) error {
	v := accessView{
		Allowed: got.GetAllowed(), Name: got.GetName(), Tenant: got.GetTenant(), Role: got.GetRole(),
		Scopes: append([]string{}, got.GetScopes()...),
	}
	for _, p := range got.GetPermissions() {
		if o.list && !p.GetAllowed() && o.out == formatTable {
			continue
		}
		v.Permissions = append(v.Permissions, p)
	}
	switch {
	case o.out != formatTable:
		return a.printObject(o.out, v)
	case o.list:
		a.notef("%s: tenant %s, role %s", clean(v.Name), clean(v.Tenant), clean(v.Role))
		l := newLister(a.stdout, o.out, []string{"CALL", "VERB", "RESOURCE", "PERMISSION", "BY"}, func(p *outbidv1.Permission) []string {
			return []string{p.GetCall(), p.GetVerb(), p.GetResource(), p.GetPermission(), clean(p.GetReason())}
		})
		l.table.width = a.columns()
		for _, p := range v.Permissions {
			if err := l.add(p); err != nil {
				return err
			}
		}
		return l.close("nothing is allowed")
	}
	for _, p := range v.Permissions {
		if answer := map[bool]string{true: "yes", false: "no"}[p.GetAllowed()]; len(v.Permissions) == 1 {
			a.printf("%s: %s\n", answer, clean(p.GetReason()))
		} else {
			a.printf("%s: %s: %s\n", answer, p.GetCall(), clean(p.GetReason()))
		}
	}
	return nil
}
