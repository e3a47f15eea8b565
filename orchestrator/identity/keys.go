package identity

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/outbid-dev/outbid/orchestrator/atomicfile"
)

// WorkerLife is how long a worker's credentials are good for. A worker that runs gets new ones when half of it is over.
const WorkerLife = 30 * 24 * time.Hour

// The files of a directory of keys: seeds in NATS's form, the account with the users that were revoked, and the operator as
// a NATS of its own was told of it.
const (
	operatorFile      = "operator.nk"
	systemFile        = "system.nk"
	accountFile       = "account.nk"
	ordersFile        = "orders.nk"
	claimsFile        = "account.jwt"
	operatorTokenFile = "operator.jwt"
)

// Keys are the keys of a cluster. Whoever has them is the orchestrator: they belong on its machines alone, and on
// all of those that stand by for it.
type Keys struct {
	dir                       string
	operator, system, account nkeys.KeyPair
	orders                    *Key
	// made are what this process signed with keys that it has here.
	made *made

	mu     sync.Mutex
	claims *jwt.AccountClaims
}

// MakeKeys reads the keys in dir, and makes them first if there are none. Only the owner may read them.
func MakeKeys(dir string) (*Keys, error) {
	_, err := os.Stat(filepath.Join(dir, accountFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = makeSeeds(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("make the cluster's keys: %w", err)
	}
	return OpenKeys(dir)
}

func makeSeeds(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	// The account comes last: it is what MakeKeys looks for.
	for _, f := range []struct {
		name string
		make func() (nkeys.KeyPair, error)
	}{
		{operatorFile, nkeys.CreateOperator},
		{systemFile, nkeys.CreateAccount},
		{ordersFile, nkeys.CreateUser},
		{accountFile, nkeys.CreateAccount},
	} {
		pair, err := f.make()
		if err != nil {
			return err
		}
		seed, err := pair.Seed()
		if err != nil {
			return err
		}
		if err := writeSecret(filepath.Join(dir, f.name), append(seed, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// OpenKeys reads the keys in dir; the error is fs.ErrNotExist if there are none.
func OpenKeys(dir string) (*Keys, error) {
	k := &Keys{dir: dir}
	var orders nkeys.KeyPair
	for _, f := range []struct {
		name   string
		prefix nkeys.PrefixByte
		pair   *nkeys.KeyPair
	}{
		{accountFile, nkeys.PrefixByteAccount, &k.account},
		{operatorFile, nkeys.PrefixByteOperator, &k.operator},
		{systemFile, nkeys.PrefixByteAccount, &k.system},
		{ordersFile, nkeys.PrefixByteUser, &orders},
	} {
		pair, err := readSeed(filepath.Join(dir, f.name), f.prefix)
		if err != nil {
			return nil, fmt.Errorf("keys of the cluster: %w", err)
		}
		*f.pair = pair
	}
	var err error
	if k.orders, err = newKey(orders); err != nil {
		return nil, fmt.Errorf("keys of the cluster: %w", err)
	}
	k.made = new(made)
	k.orders.made = k.made
	if err := k.readClaims(); err != nil {
		return nil, fmt.Errorf("keys of the cluster: %w", err)
	}
	return k, nil
}

// readSeed reads a key of a kind from its file.
func readSeed(path string, prefix nkeys.PrefixByte) (nkeys.KeyPair, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	seed := []byte(strings.TrimSpace(string(data)))
	kind, _, err := nkeys.DecodeSeed(seed)
	if err != nil || kind != prefix {
		return nil, fmt.Errorf("%s holds no seed of a NATS %s: was it damaged?", path, prefix)
	}
	return nkeys.FromSeed(seed)
}

func (k *Keys) readClaims() error {
	public, err := k.account.PublicKey()
	if err != nil {
		return err
	}
	path := filepath.Join(k.dir, claimsFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		k.claims = jwt.NewAccountClaims(public)
		k.claims.Name = "outbid"
		k.claims.Limits.JetStreamLimits = jwt.JetStreamLimits{
			MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit,
		}
		return nil
	}
	if err != nil {
		return err
	}
	if k.claims, err = jwt.DecodeAccountClaims(strings.TrimSpace(string(data))); err != nil || k.claims.Subject != public {
		return fmt.Errorf("%s is not of the account in %s: was it damaged? The users that were revoked stand there", path,
			accountFile)
	}
	return nil
}

// Dir is where the keys are.
func (k *Keys) Dir() string { return k.dir }

// Orders is the key that orders and functions are signed with.
func (k *Keys) Orders() *Key { return k.orders }

// Account is the public key of the account that everything of Outbid is in.
func (k *Keys) Account() string { return public(k.account) }

// Orchestrator makes a user that may do everything in the account. Its key lives in this process alone.
func (k *Keys) Orchestrator() (*Credentials, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	token, err := jwt.NewUserClaims(key.Public()).Encode(k.account)
	if err != nil {
		return nil, fmt.Errorf("make a NATS user: %w", err)
	}
	return &Credentials{OrdersKey: k.orders.Public(), key: key, token: token}, nil
}

// Observer makes a user of NATS's own account that may ask the servers how much they store, and nothing else. Its key lives in
// this process alone.
func (k *Keys) Observer() (*Credentials, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	claims := jwt.NewUserClaims(key.Public())
	claims.Name = "outbid metrics"
	claims.Pub.Allow.Add(StorageSubject)
	claims.Sub.Allow.Add("_INBOX.>")
	token, err := claims.Encode(k.system)
	if err != nil {
		return nil, fmt.Errorf("make a NATS user: %w", err)
	}
	return &Credentials{key: key, token: token}, nil
}

// StorageSubject is where NATS servers are asked how much JetStream stores.
const StorageSubject = "$SYS.REQ.SERVER.PING.JSZ"

// Verifier makes a verifier of a user's public key. What this process signed itself with that user's key, it believes at once.
func (k *Keys) Verifier(public string) (*Verifier, error) {
	v, err := NewVerifier(public)
	if err == nil {
		v.made = k.made
	}
	return v, err
}

// Worker makes credentials for a worker of this process, whose key lives in it alone.
func (k *Keys) Worker(node string, now time.Time) (*Credentials, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	key.made = k.made
	token, err := k.IssueWorker(node, key.Public(), now)
	if err != nil {
		return nil, err
	}
	c, err := NewCredentials(key, token)
	if err != nil {
		return nil, err
	}
	c.OrdersKey = k.orders.Public()
	return c, nil
}

// IssueWorker makes the JWT by which NATS knows a worker's public key. It may publish as its node and read what is
// for its node, and nothing else: not the ledger, nor JetStream's API, nor what others say and print.
func (k *Keys) IssueWorker(node, public string, now time.Time) (string, error) {
	if !nkeys.IsValidPublicUserKey(public) {
		return "", fmt.Errorf("%q is no public key of a NATS user", public)
	}
	claims := jwt.NewUserClaims(public)
	claims.Name = node
	claims.Expires = now.Add(WorkerLife).Unix()
	claims.Pub.Allow.Add("outbid.v1.up."+node, "outbid.v1.access."+node, "outbid.v1.logs."+node+".*.*.*")
	claims.Sub.Allow.Add("outbid.v1.orders."+node, InboxPrefix(node)+".>")
	token, err := claims.Encode(k.account)
	if err != nil {
		return "", fmt.Errorf("make the NATS user of %s: %w", node, err)
	}
	return token, nil
}

// InboxPrefix begins the subjects where answers to a node's requests come.
func InboxPrefix(node string) string { return "_INBOX_" + node }

// Revoke makes the users of a public key that were made until now worthless. It returns the account as NATS wants to
// know it.
func (k *Keys) Revoke(public string, now time.Time) (token string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for old, at := range k.claims.Revocations {
		if time.Unix(at, 0).Add(WorkerLife).Before(now) {
			delete(k.claims.Revocations, old) // what it was good for has run out by itself
		}
	}
	k.claims.RevokeAt(public, now)
	if token, err = k.claims.Encode(k.operator); err != nil {
		return "", fmt.Errorf("revoke a NATS user: %w", err)
	}
	if err := writeSecret(filepath.Join(k.dir, claimsFile), []byte(token+"\n")); err != nil {
		return "", fmt.Errorf("revoke a NATS user: %w", err)
	}
	return token, nil
}

// AccountToken is the account as NATS wants to know it, with those that were revoked.
func (k *Keys) AccountToken() (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	token, err := k.claims.Encode(k.operator)
	if err != nil {
		return "", fmt.Errorf("sign the NATS account: %w", err)
	}
	return token, nil
}

// System is the account of NATS's own, which it tells of itself in: its public key, and as NATS wants to know it.
func (k *Keys) System() (name, token string, err error) {
	claims := jwt.NewAccountClaims(public(k.system))
	claims.Name = "system"
	if token, err = claims.Encode(k.operator); err != nil {
		return "", "", fmt.Errorf("sign the NATS system account: %w", err)
	}
	return claims.Subject, token, nil
}

// public is the public half of a key of our own, which has always one.
func public(pair nkeys.KeyPair) string {
	text, err := pair.PublicKey()
	if err != nil {
		return ""
	}
	return text
}

// writeSecret writes a file that its owner alone may read, whole or not at all.
func writeSecret(path string, data []byte) error {
	return atomicfile.WriteSynced(path, 0o600, func(w *os.File) error {
		_, err := w.Write(data)
		return err
	})
}
