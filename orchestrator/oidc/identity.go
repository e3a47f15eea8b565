package oidc

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
)

// Identity is what a verified token says about its holder.
type Identity struct {
	Issuer  string
	Subject string
	// Name is the value of the username claim.
	Name   string
	Groups []string
	// Expires is when the token expires.
	Expires time.Time
	// Nonce ties the token to one sign-in, or is "".
	Nonce string

	claims map[string]json.RawMessage
}

// Claim decodes a claim of the token into v. It reports whether the token has the claim.
func (i Identity) Claim(name string, v any) (bool, error) {
	raw, ok := i.claims[name]
	if !ok {
		return false, nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return true, fmt.Errorf("claim %q: %w", name, err)
	}
	return true, nil
}

// maxName is the longest accepted name of a user or group. Names are in events and logs.
const maxName = 256

// username returns the caller's name from a claim. An e-mail address that the provider did not verify is refused
// because its owner may be another person.
func username(claims map[string]json.RawMessage, claim string) (string, error) {
	raw, ok := claims[claim]
	if !ok {
		return "", fmt.Errorf("username claim %q: the token does not have it; it has %s", claim, names(claims))
	}
	var name string
	if err := json.Unmarshal(raw, &name); err != nil {
		return "", fmt.Errorf("username claim %q: must be a string, got %s", claim, raw)
	}
	if err := checkName(name); err != nil {
		return "", fmt.Errorf("username claim %q: %w", claim, err)
	}
	if verified, ok := claims["email_verified"]; claim == "email" && ok && string(verified) != "true" {
		return "", fmt.Errorf("username claim %q: email_verified must be true, got %s", claim, verified)
	}
	return name, nil
}

// groups returns the values of a claim that is a string or a list of strings.
func groups(claims map[string]json.RawMessage, claim string) ([]string, error) {
	raw, ok := claims[claim]
	if claim == "" || !ok || string(raw) == "null" {
		return nil, nil
	}
	var list []string
	if err := json.Unmarshal(raw, &list); err != nil {
		var one string
		if json.Unmarshal(raw, &one) != nil {
			return nil, fmt.Errorf("groups claim %q: must be a list of strings, got %s", claim, raw)
		}
		list = []string{one}
	}
	for _, group := range list {
		if err := checkName(group); err != nil {
			return nil, fmt.Errorf("groups claim %q: %w", claim, err)
		}
	}
	return list, nil
}

func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("must not be empty")
	case len(name) > maxName:
		return fmt.Errorf("must have at most %d bytes, got %d", maxName, len(name))
	case strings.ContainsFunc(name, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }):
		return fmt.Errorf("must contain printable characters only, got %q", name)
	}
	return nil
}

// names lists the names of a token's claims.
func names(claims map[string]json.RawMessage) string {
	list := make([]string, 0, len(claims))
	for name := range claims {
		list = append(list, name)
	}
	return quoteSorted(list)
}

// explain words go-oidc's errors for the person who sent the token.
func explain(err error, token string) error {
	var expired *oidc.TokenExpiredError
	if errors.As(err, &expired) {
		return fmt.Errorf("the token expired at %s: sign in again", expired.Expiry.UTC().Format(time.RFC3339))
	}
	text := strings.TrimPrefix(err.Error(), "oidc: ")
	if alg := algorithm(token); strings.Contains(text, "unexpected signature algorithm") {
		return fmt.Errorf("the token is signed with %q: must be one of %s", alg, strings.Join(algorithms(), ", "))
	}
	return fmt.Errorf("the token is not valid: %s", text)
}

// algorithm returns the signature algorithm that a token's header names.
func algorithm(token string) string {
	head, _, _ := strings.Cut(token, ".")
	data, err := base64.RawURLEncoding.DecodeString(head)
	if err != nil {
		return ""
	}
	var header struct {
		Algorithm string `json:"alg"`
	}
	_ = json.Unmarshal(data, &header)
	return header.Algorithm
}

// IsToken reports whether a bearer token has the form of a JSON Web Token.
func IsToken(token string) bool {
	return strings.HasPrefix(token, "eyJ") && strings.Count(token, ".") == 2
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
