package cli

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/oidc/saved"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (p *signInCommands) logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "logout",
		Short: "Forget the sign-in to the server",
		Long: `Logout removes the token of 'outbid login' for this server, and asks the provider to revoke it. Your session at the
provider and other machines' sign-ins stay.`,
		Example:           "  outbid logout",
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := p.findServer()
			if err != nil {
				return err
			}
			path, err := p.signInPath(t.url)
			if err != nil {
				return err
			}
			s, loadErr := saved.Load(path)
			if errors.Is(loadErr, saved.ErrNone) {
				p.printf("not signed in to %s\n", t.url)
				return nil
			}
			if loadErr == nil {
				if err := saved.Revoke(cmd.Context(), s); err != nil {
					p.notef("the provider did not revoke the token, which expires by itself: %v", err)
				}
			}
			if err := saved.Remove(path); err != nil {
				return err
			}
			p.printf("signed out of %s\n", t.url)
			return nil
		},
	}
}

// callerView is the output of `whoami -o json`.
type callerView struct {
	Server string `json:"server" doc:"URL of the server"`
	Name   string `json:"name" doc:"name in events and logs"`
	Tenant string `json:"tenant" doc:"tenant, or * for every tenant"`
	Role   string `json:"role" doc:"what the caller may do"`
	Source string `json:"source" doc:"how the caller identified: token, sign-in, or none if the server asks for no token"`
	// Issuer and Expires are those of a sign-in.
	Issuer  string     `json:"issuer,omitempty" doc:"provider of a sign-in"`
	Expires *time.Time `json:"expires,omitempty" doc:"when the token of a sign-in expires; it is refreshed if the provider allows it"`
}

func (p *signInCommands) whoamiCommand() *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:   "whoami",
		Short: "Show as whom the server knows you",
		Long:  "Whoami shows your name, tenant and role as the server sees them, with a token or after 'outbid login'.",
		Example: `  outbid whoami
  outbid whoami -o json`,
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			defer c.close()
			info, err := c.GetServerInfo(cmd.Context(), &outbidv1.GetServerInfoRequest{})
			if err != nil {
				return err
			}
			v := viewCaller(c.target, info.GetCaller())
			if out != formatTable {
				return p.printObject(out, v)
			}
			p.printf("%s (tenant %s, role %s) at %s\n", v.Name, v.Tenant, v.Role, v.Server)
			if v.Expires != nil {
				p.printf("signed in with %s; the token expires at %s\n", v.Issuer, v.Expires.Local().Format(time.DateTime))
			}
			return nil
		},
	}
	outputFlag(cmd, &out)
	return cmd
}

func viewCaller(t target, who *outbidv1.Caller) callerView {
	v := callerView{Server: t.url, Name: who.GetName(), Tenant: who.GetTenant(), Role: who.GetRole(), Source: "token"}
	switch {
	case who.GetLocal():
		v.Source = "none"
	case t.signIn != "":
		v.Source = "sign-in"
		if s, err := saved.Load(t.signIn); err == nil {
			expires := s.Expires().UTC()
			v.Issuer, v.Expires = s.Issuer, &expires
		}
	}
	return v
}
