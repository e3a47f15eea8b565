// Package oidc verifies JSON Web Tokens of an OpenID Connect provider, or of a Kubernetes API server, and returns the
// identities that they prove. A Verifier finds the provider when it first needs it, so that a server starts and keeps
// serving callers with other tokens while the provider is down.
package oidc
