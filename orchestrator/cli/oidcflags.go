package cli

import (
	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/server"
)

// oidcFlags adds the flags of sign-in with an OpenID provider, named as kube-apiserver's.
func oidcFlags(cmd *cobra.Command, o *server.OIDCConfig) {
	f := cmd.Flags()
	f.StringVar(&o.IssuerURL, "oidc-issuer-url", "", "`URL` of the OpenID provider with which people sign in ('outbid login')")
	f.StringVar(&o.ClientID, "oidc-client-id", "", "`NAME` of the client at the provider, which tokens must have as audience")
	f.StringVar(&o.UsernameClaim, "oidc-username-claim", "sub", "`CLAIM` with a person's name, such as preferred_username or email")
	f.StringVar(&o.GroupsClaim, "oidc-groups-claim", "", "`CLAIM` with a person's groups, such as groups")
	f.StringVar(&o.CAFile, "oidc-ca-file", "", "PEM `FILE` of the authority of the provider's certificate")
	f.StringVar(&o.Bindings, "oidc-bindings", "", "YAML `FILE` that gives users and groups a tenant and a role, read again when it changes")
	f.StringSliceVar(&o.Scopes, "oidc-scopes", nil, "`SCOPES` to ask for at sign-in (default: openid, and those of profile, email, groups and "+
		"offline_access that the provider offers)")
	_ = cmd.MarkFlagFilename("oidc-ca-file")
	_ = cmd.MarkFlagFilename("oidc-bindings")
	markRare(cmd, "oidc-username-claim", "oidc-groups-claim", "oidc-ca-file", "oidc-scopes")
}
