package identity

import (
	"bytes"
	"fmt"

	"github.com/nats-io/jwt/v2"
)

// NATSConfig is what the configuration of a NATS server of its own includes, so that it lets in whom these keys have
// signed: the operator that it trusts, and the accounts, with the users that were revoked until now. There is no secret
// in it.
func (k *Keys) NATSConfig() ([]byte, error) {
	operator, err := k.operatorToken()
	if err != nil {
		return nil, err
	}
	account, err := k.AccountToken()
	if err != nil {
		return nil, err
	}
	system, systemToken, err := k.System()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `# Whom this NATS lets in: those whom the keys of an Outbid cluster have signed. Made by 'outbid nats init'.
operator: "%s"
system_account: "%s"
resolver: MEMORY
resolver_preload: {
  "%s": "%s"
  "%s": "%s"
}
`, operator, system, k.Account(), account, system, systemToken)
	return b.Bytes(), nil
}

func (k *Keys) operatorToken() (string, error) {
	claims := jwt.NewOperatorClaims(public(k.operator))
	claims.Name = "outbid"
	claims.SystemAccount = public(k.system)
	token, err := claims.Encode(k.operator)
	if err != nil {
		return "", fmt.Errorf("sign the NATS operator: %w", err)
	}
	return token, nil
}

// Operator is what a NATS server trusts: whoever its key has signed.
func (k *Keys) Operator() (*jwt.OperatorClaims, error) {
	token, err := k.operatorToken()
	if err != nil {
		return nil, err
	}
	return jwt.DecodeOperatorClaims(token)
}
