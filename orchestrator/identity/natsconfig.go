package identity

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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

// operatorToken is the operator as NATS wants to know it. It is made once and kept, as it says when it was made: a NATS that
// runs reads its configuration again only if the operator in it is the same.
func (k *Keys) operatorToken() (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	path := filepath.Join(k.dir, operatorTokenFile)
	data, err := os.ReadFile(path)
	if err == nil {
		token := strings.TrimSpace(string(data))
		if claims, err := jwt.DecodeOperatorClaims(token); err == nil && claims.Subject == public(k.operator) {
			return token, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the NATS operator: %w", err)
	}
	token, err := k.signOperator()
	if err != nil {
		return "", err
	}
	if err := writeSecret(path, []byte(token+"\n")); err != nil {
		return "", fmt.Errorf("keep the NATS operator: %w", err)
	}
	return token, nil
}

func (k *Keys) signOperator() (string, error) {
	claims := jwt.NewOperatorClaims(public(k.operator))
	claims.Name = "outbid"
	claims.SystemAccount = public(k.system)
	token, err := claims.Encode(k.operator)
	if err != nil {
		return "", fmt.Errorf("sign the NATS operator: %w", err)
	}
	return token, nil
}

// Operator is what a NATS server in this process trusts: whoever its key has signed.
func (k *Keys) Operator() (*jwt.OperatorClaims, error) {
	token, err := k.signOperator()
	if err != nil {
		return nil, err
	}
	return jwt.DecodeOperatorClaims(token)
}
