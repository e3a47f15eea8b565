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

// NATSConfig returns configuration for a separate NATS server, so that it admits users signed by these keys: the
// trusted operator, and the accounts with the users that are revoked so far. It does not contain secrets.
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
	fmt.Fprintf(&b, `# This NATS admits users signed by the keys of an Outbid cluster. Written by 'outbid nats init'.
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

// operatorToken returns the operator's token for NATS. It is created once and stored, because it contains its creation
// time, and a running NATS reloads its configuration only if the operator is unchanged.
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
		return "", fmt.Errorf("store the NATS operator: %w", err)
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

// Operator returns the operator that a NATS server in this process trusts.
func (k *Keys) Operator() (*jwt.OperatorClaims, error) {
	token, err := k.signOperator()
	if err != nil {
		return nil, err
	}
	return jwt.DecodeOperatorClaims(token)
}
