package identity

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/outbid-dev/outbid/orchestrator/atomicfile"
)

// WorkerLife is how long a worker's credentials are valid. A running worker gets new ones after half of that time.
const WorkerLife = 30 * 24 * time.Hour

// The files of a keys directory: seeds in NATS's format, the account with the revoked users, and the operator as in the
// configuration of a separate NATS.
const (
	operatorFile      = "operator.nk"
	systemFile        = "system.nk"
	accountFile       = "account.nk"
	ordersFile        = "orders.nk"
	claimsFile        = "account.jwt"
	operatorTokenFile = "operator.jwt"
)

// Keys are the keys of a cluster. Anyone who has them can act as the server, so they belong only on the machines of
// servers and standbys.
type Keys struct {
	dir                       string
	operator, system, account nkeys.KeyPair
	orders                    *Key
	// made has the signatures that this process made with its keys.
	made *made

	mu     sync.Mutex
	claims *jwt.AccountClaims
}

// MakeKeys reads the keys in dir, or creates them if they are missing. Only the owner may read them.
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
	// The account is last because MakeKeys checks for it.
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

// OpenKeys reads the keys in dir, or returns fs.ErrNotExist.
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
		return nil, fmt.Errorf("%s does not contain the seed of a NATS %s: is it damaged?", path, prefix)
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
		return fmt.Errorf("%s does not belong to the account in %s: is it damaged? It lists the revoked users", path,
			accountFile)
	}
	return nil
}

// Dir returns the directory of the keys.
func (k *Keys) Dir() string { return k.dir }

// Orders returns the key that signs orders and functions.
func (k *Keys) Orders() *Key { return k.orders }

// Account returns the public key of the account for all of Outbid's data.
func (k *Keys) Account() string { return public(k.account) }

// Orchestrator creates a user with all permissions in the account. Its key exists only in this process.
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

// Observer creates a user of NATS's system account that may only ask servers for their storage usage. Its key exists
// only in this process.
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

// StorageSubject is the subject for requests of JetStream's storage usage.
const StorageSubject = "$SYS.REQ.SERVER.PING.JSZ"

// Verifier returns a verifier for a user's public key. It accepts signatures of this process without verification.
func (k *Keys) Verifier(public string) (*Verifier, error) {
	v, err := NewVerifier(public)
	if err == nil {
		v.made = k.made
	}
	return v, err
}

// Worker creates credentials for a worker in this process. Their key exists only in this process.
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

// IssueWorker creates the JWT that makes NATS accept a worker's public key. The worker may publish as its node and read
// what is for its node, but it cannot access the ledger, JetStream's API, or messages and output of others.
func (k *Keys) IssueWorker(node, public string, now time.Time) (string, error) {
	if !nkeys.IsValidPublicUserKey(public) {
		return "", fmt.Errorf("%q is not a NATS user public key", public)
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

// InboxPrefix returns the prefix of the subjects for answers to a node's requests.
func InboxPrefix(node string) string { return "_INBOX_" + node }

// ErrReadOnly means that the directory of the keys cannot be written, such as the volume of a Kubernetes Secret.
var ErrReadOnly = errors.New("the keys are on a read-only file system")

// Revoke invalidates the users that were created for a public key until now. It returns the account's token for NATS, with
// ErrReadOnly too: then the revocation ends with this process.
func (k *Keys) Revoke(public string, now time.Time) (token string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for old, at := range k.claims.Revocations {
		if time.Unix(at, 0).Add(WorkerLife).Before(now) {
			delete(k.claims.Revocations, old) // its credentials have expired anyway
		}
	}
	k.claims.RevokeAt(public, now)
	if token, err = k.claims.Encode(k.operator); err != nil {
		return "", fmt.Errorf("revoke a NATS user: %w", err)
	}
	err = writeSecret(filepath.Join(k.dir, claimsFile), []byte(token+"\n"))
	if errors.Is(err, syscall.EROFS) {
		return token, fmt.Errorf("revoke a NATS user: %w: %w", ErrReadOnly, err)
	}
	if err != nil {
		return "", fmt.Errorf("revoke a NATS user: %w", err)
	}
	return token, nil
}

// AccountToken returns the account's token for NATS, with the revoked users.
func (k *Keys) AccountToken() (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	token, err := k.claims.Encode(k.operator)
	if err != nil {
		return "", fmt.Errorf("sign the NATS account: %w", err)
	}
	return token, nil
}

// System returns the public key and the token of NATS's system account.
func (k *Keys) System() (name, token string, err error) {
	claims := jwt.NewAccountClaims(public(k.system))
	claims.Name = "system"
	if token, err = claims.Encode(k.operator); err != nil {
		return "", "", fmt.Errorf("sign the NATS system account: %w", err)
	}
	return claims.Subject, token, nil
}

// public returns the public key of an own key pair, which always has one.
func public(pair nkeys.KeyPair) string {
	text, err := pair.PublicKey()
	if err != nil {
		return ""
	}
	return text
}

// writeSecret writes a file atomically that only its owner may read.
func writeSecret(path string, data []byte) error {
	return atomicfile.WriteSynced(path, 0o600, func(w *os.File) error {
		_, err := w.Write(data)
		return err
	})
}
