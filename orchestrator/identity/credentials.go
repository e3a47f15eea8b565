package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// The files of a credentials directory. NATS's tools can read the first.
const (
	credsFile  = "nats.creds"
	workerFile = "worker.json"
	caFile     = "ca.pem"
)

// Credentials identify one user of the bus: its key, the JWT that NATS accepts, and, for a worker, the public key for
// the signatures of its orders.
type Credentials struct {
	// Node is the worker's node; empty for a server.
	Node string
	// NATS is the URL of NATS, or several separated by commas.
	NATS string
	// Server is the URL of the API that admitted the worker.
	Server string
	// OrdersKey is the server's public key, which verifies orders and functions.
	OrdersKey string
	// CA is the file of the authority for certificates; empty for the system's authorities.
	CA string

	key *Key
	dir string

	mu      sync.Mutex
	token   string
	expires time.Time
}

// workerJSON is the content of workerFile.
type workerJSON struct {
	Node      string `json:"node"`
	NATS      string `json:"nats"`
	Server    string `json:"server,omitempty"`
	OrdersKey string `json:"orders_key"`
}

// NewCredentials combines a worker's key with the JWT issued for it.
func NewCredentials(key *Key, token string) (*Credentials, error) {
	claims, err := jwt.DecodeUserClaims(token)
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	if claims.Subject != key.Public() {
		return nil, errors.New("credentials: the JWT belongs to another key")
	}
	return &Credentials{Node: claims.Name, key: key, token: token, expires: expiry(claims)}, nil
}

// ReadCredentials reads a directory that Write wrote.
func ReadCredentials(dir string) (*Credentials, error) {
	data, err := os.ReadFile(filepath.Join(dir, workerFile))
	if err != nil {
		return nil, err
	}
	var w workerJSON
	if err := json.Unmarshal(data, &w); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", filepath.Join(dir, workerFile), err)
	}
	path := filepath.Join(dir, credsFile)
	if data, err = os.ReadFile(path); err != nil {
		return nil, err
	}
	token, err := jwt.ParseDecoratedJWT(data)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", path, err)
	}
	pair, err := jwt.ParseDecoratedUserNKey(data)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", path, err)
	}
	key, err := newKey(pair)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", path, err)
	}
	c, err := NewCredentials(key, token)
	if err != nil || c.Node != w.Node {
		return nil, errors.Join(fmt.Errorf("%s does not belong to the node %q in %s", path, w.Node, workerFile), err)
	}
	c.NATS, c.Server, c.OrdersKey, c.dir = w.NATS, w.Server, w.OrdersKey, dir
	ca := filepath.Join(dir, caFile)
	switch _, err := os.Stat(ca); {
	case err == nil:
		c.CA = ca
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	return c, nil
}

// Write writes the directory, which only its owner may read, and replaces its content. ca is the content of the
// authority's file, or empty.
func (c *Credentials) Write(dir string, ca []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write credentials: %w", err)
	}
	data, err := json.MarshalIndent(workerJSON{c.Node, c.NATS, c.Server, c.OrdersKey}, "", "  ")
	if err != nil {
		return fmt.Errorf("write credentials: %w", err)
	}
	if err := writeSecret(filepath.Join(dir, workerFile), append(data, '\n')); err != nil {
		return fmt.Errorf("write credentials: %w", err)
	}
	path := filepath.Join(dir, caFile)
	if len(ca) > 0 {
		err, c.CA = writeSecret(path, ca), path
	} else if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("write credentials: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dir = dir
	return c.save()
}

// save writes the JWT and the key. mu must be held.
func (c *Credentials) save() error {
	seed, err := c.key.pair.Seed()
	if err != nil {
		return fmt.Errorf("write credentials: %w", err)
	}
	data, err := jwt.FormatUserConfig(c.token, seed)
	if err != nil {
		return fmt.Errorf("write credentials: %w", err)
	}
	if err := writeSecret(filepath.Join(c.dir, credsFile), data); err != nil {
		return fmt.Errorf("write credentials: %w", err)
	}
	return nil
}

// Public returns the user's public key.
func (c *Credentials) Public() string { return c.key.Public() }

// Key returns the user's key.
func (c *Credentials) Key() *Key { return c.key }

// Orders returns the verifier for the server's orders and functions.
func (c *Credentials) Orders() (*Verifier, error) {
	v, err := NewVerifier(c.OrdersKey)
	if err == nil {
		v.made = c.key.made
	}
	return v, err
}

// Expires returns when NATS stops accepting the user; zero for never.
func (c *Credentials) Expires() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.expires
}

func expiry(claims *jwt.UserClaims) time.Time {
	if claims.Expires == 0 {
		return time.Time{}
	}
	return time.Unix(claims.Expires, 0)
}

// Renew replaces the JWT if the new one expires later, and saves it if the credentials are in a directory.
func (c *Credentials) Renew(token string) error {
	claims, err := jwt.DecodeUserClaims(token)
	switch {
	case err != nil:
		return fmt.Errorf("renew credentials: %w", err)
	case claims.Subject != c.key.Public() || claims.Name != c.Node:
		return errors.New("renew credentials: they belong to another worker")
	case !expiry(claims).After(c.Expires()):
		return nil // the current ones are as good
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token, c.expires = token, expiry(claims)
	if c.dir == "" {
		return nil
	}
	return c.save()
}

// Options returns the options that connect to NATS with these credentials.
func (c *Credentials) Options() []nats.Option {
	jwtOption := nats.UserJWT(func() (string, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.token, nil
	}, c.key.signNonce)
	if c.Node == "" {
		return []nats.Option{jwtOption}
	}
	return []nats.Option{jwtOption, nats.CustomInboxPrefix(InboxPrefix(c.Node))}
}

// IsKey reports whether text is the public key of a user.
func IsKey(text string) bool { return nkeys.IsValidPublicUserKey(text) }
