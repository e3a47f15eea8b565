package oidc

import (
	"context"
	"fmt"
	"slices"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// usualScopes returns the scopes that a sign-in asks for if the provider offers them. offline_access makes some
// providers return a refresh token; others do so without it.
func usualScopes(offline bool) []string {
	scopes := []string{"profile", "email", "groups"}
	if offline {
		scopes = append(scopes, oidc.ScopeOfflineAccess)
	}
	return scopes
}

// OAuth returns the configuration of a sign-in at the provider, without a redirect URL. With nil scopes it asks for
// those of the usual scopes that the provider offers; offline asks for a refresh token.
func (v *Verifier) OAuth(ctx context.Context, scopes []string, offline bool) (*oauth2.Config, error) {
	provider, err := v.Provider(ctx)
	if err != nil {
		return nil, err
	}
	endpoint := provider.Endpoint()
	endpoint.AuthStyle = oauth2.AuthStyleInParams // finding it out would use up the code
	if scopes == nil {
		var says struct {
			Scopes []string `json:"scopes_supported"`
		}
		if err := provider.Claims(&says); err != nil {
			return nil, fmt.Errorf("issuer %s: its discovery document: %w", v.cfg.Issuer, err)
		}
		scopes = slices.DeleteFunc(usualScopes(offline), func(s string) bool { return !slices.Contains(says.Scopes, s) })
	}
	if !slices.Contains(scopes, oidc.ScopeOpenID) {
		scopes = append([]string{oidc.ScopeOpenID}, scopes...)
	}
	return &oauth2.Config{ClientID: v.cfg.ClientID, Endpoint: endpoint, Scopes: scopes}, nil
}

// Context returns a context in which package oauth2 uses this Verifier's HTTP client.
func (v *Verifier) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, oauth2.HTTPClient, v.client)
}

// VerifyAnswer checks the ID token in the answer of a token endpoint. nonce must be the one that the sign-in sent, or
// "" for a flow without one. It returns the ID token too.
func (v *Verifier) VerifyAnswer(ctx context.Context, answer *oauth2.Token, nonce string) (Identity, string, error) {
	raw, _ := answer.Extra("id_token").(string)
	if raw == "" {
		return Identity{}, "", fmt.Errorf("issuer %s: its answer has no ID token: let the client %q use the scope openid",
			v.cfg.Issuer, v.cfg.ClientID)
	}
	who, err := v.Verify(ctx, raw)
	if err != nil {
		return who, "", err
	}
	if nonce != "" && who.Nonce != nonce {
		return who, "", fmt.Errorf("issuer %s: its ID token is of another sign-in: start again", v.cfg.Issuer)
	}
	return who, raw, nil
}
