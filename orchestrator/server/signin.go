package server

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/api"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/oidc"
)

// OIDCConfig lets people sign in with an OpenID provider. It is unused without IssuerURL. The names are those of
// kube-apiserver's flags.
type OIDCConfig struct {
	// IssuerURL is the provider's URL, exactly as in its tokens.
	IssuerURL string
	// ClientID must be in the audience of tokens.
	ClientID string
	// UsernameClaim is the claim with a person's name; by default sub. GroupsClaim is that with the groups, or "".
	UsernameClaim, GroupsClaim string
	// CAFile has the authorities of the provider's certificate; by default the system's authorities.
	CAFile string
	// Scopes are asked for at sign-in; by default the usual ones that the provider offers.
	Scopes []string
	// Bindings is the YAML file that gives people and groups a tenant and a role. It is required with IssuerURL.
	Bindings string
}

// check rejects settings without their companions.
func (o OIDCConfig) check() error {
	if o.IssuerURL == "" {
		for field, value := range map[string]string{"OIDC.ClientID": o.ClientID, "OIDC.Bindings": o.Bindings, "OIDC.CAFile": o.CAFile} {
			if value != "" {
				return badField(field, "requires an issuer URL, such as https://login.example.org")
			}
		}
		return nil
	}
	if o.ClientID == "" {
		return badField("OIDC.ClientID", "missing: must be the name of the client at %s", o.IssuerURL)
	}
	if o.Bindings == "" {
		return badField("OIDC.Bindings", "missing: must be a YAML file such as [{group: vision, tenant: vision, role: user}]; without it nobody who signs in may do anything")
	}
	return nil
}

// openSignIn creates what accepts people of the provider. It does not contact the provider, which may be down.
func (c *operatorFiles) openSignIn(o OIDCConfig, keys *identity.Keys) error {
	if err := o.check(); err != nil || o.IssuerURL == "" {
		return err
	}
	verifier, err := oidc.New(oidc.Config{
		Issuer: o.IssuerURL, ClientID: o.ClientID, UsernameClaim: o.UsernameClaim, GroupsClaim: o.GroupsClaim, CAFile: o.CAFile, Now: c.now,
	})
	if err != nil {
		return badField("OIDC.IssuerURL", "%w", err)
	}
	if c.bindings, err = api.LoadBindings(o.Bindings); err != nil {
		return badField("OIDC.Bindings", "%w", err)
	}
	c.signIn = &api.SignIn{Verifier: verifier, Bindings: c.bindings, Scopes: o.Scopes}
	if o.CAFile != "" {
		if c.signIn.CA, err = os.ReadFile(o.CAFile); err != nil {
			return badField("OIDC.CAFile", "%w", err)
		}
	}
	if keys != nil { // the configuration is only checked without
		if c.signIn.Key, err = keys.SessionKey(); err != nil {
			return err
		}
	}
	if c.tokens == nil {
		c.tokens = &api.Tokens{} // callers must sign in
	}
	return nil
}

// providerEvery is how often the provider is looked for until it answers.
const providerEvery = 30 * time.Second

// findProvider looks for the provider until it answers, so that the log says early that it does not. People with
// tokens of the file are served meanwhile.
func (c *operatorFiles) findProvider(ctx context.Context) error {
	tick := time.NewTicker(providerEvery)
	defer tick.Stop()
	said := ""
	for {
		_, err := c.signIn.Verifier.Provider(ctx)
		switch {
		case err == nil:
			c.log.Info("people can sign in", "issuer", c.signIn.Verifier.Issuer())
			<-ctx.Done() // a part that ends stops the server
			return nil
		case errors.Is(err, oidc.ErrUnavailable) && err.Error() != said:
			said = err.Error()
			c.log.Warn("nobody can sign in until the OpenID provider answers; tokens of the file are accepted", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
