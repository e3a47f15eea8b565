// Package secrets stores the secrets of tenants: named values for the environment of their trials. They are encrypted
// in a key-value bucket of NATS, outside the ledger, and decrypted only to be sealed for the worker that starts a
// trial.
package secrets

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/state"
)

// Bucket is the key-value bucket of the secrets. Workers cannot read it, and it does not keep a history.
const Bucket = "OUTBID_SECRETS"

// ErrMissing means that a tenant does not have a secret with that name.
var ErrMissing = errors.New("there is no such secret")

// bucketSubject starts the subjects of the bucket's entries.
const bucketSubject = "$KV." + Bucket + "."

// followEvery is how often Follow checks whether the bucket has changed.
const followEvery = 15 * time.Second

// patience limits each call to NATS.
const patience = 10 * time.Second

// Info describes a secret without its value.
type Info struct {
	Tenant, Name string
	SetAt        time.Time
	// SetBy is the name of the token that set it.
	SetBy string
}

// record is an entry of the bucket. Box has the nonce and the encrypted value.
type record struct {
	SetAt time.Time `json:"set_at"`
	SetBy string    `json:"set_by"`
	Box   []byte    `json:"box"`
}

type id struct{ tenant, name string }

// Vault stores secrets. It is safe for concurrent use. The leader writes to the bucket; Follow reads late writes of a
// previous leader.
type Vault struct {
	kv   jetstream.KeyValue
	js   jetstream.JetStream
	aead cipher.AEAD
	now  func() time.Time

	// writing is held during a write, so that the limit is enforced and the cache matches the bucket.
	writing sync.Mutex
	// read is the bucket's last sequence and its number of entries when it was last read. writing must be held.
	read [2]uint64
	mu   sync.RWMutex
	// known caches the entries of the bucket with their encrypted values.
	known map[id]record
}

// Config configures a Vault.
type Config struct {
	// Key encrypts the values; see identity.Keys.SecretsKey.
	Key []byte
	// Replicas of the bucket in a NATS cluster; 0 means 1.
	Replicas int
	// Now is the clock.
	Now func() time.Time
}

// Open opens the bucket, which it creates if missing, and reads it.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Vault, error) {
	v, err := open(ctx, nc, cfg)
	if err != nil {
		return nil, fmt.Errorf("open the secrets: %w", err)
	}
	return v, nil
}

func open(ctx context.Context, nc *nats.Conn, cfg Config) (*Vault, error) {
	block, err := aes.NewCipher(cfg.Key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	kv, err := bus.MakeBucket(ctx, js, jetstream.KeyValueConfig{
		Bucket: Bucket, Description: "secrets of tenants, encrypted", History: 1,
		Storage: jetstream.FileStorage, Replicas: max(cfg.Replicas, 1),
	})
	if err != nil {
		return nil, err
	}
	v := &Vault{kv: kv, js: js, aead: aead, now: cfg.Now, known: map[id]record{}}
	return v, v.load(ctx)
}

// Follow reads the bucket again whenever it has changed, until ctx ends.
func (v *Vault) Follow(ctx context.Context) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			_ = v.load(ctx) // NATS is unavailable: the cache is used until it is back
		}
	}
}

// load reads every entry if the bucket has changed since the last read.
func (v *Vault) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	v.writing.Lock()
	defer v.writing.Unlock()
	stream, err := v.js.Stream(ctx, "KV_"+Bucket)
	if err != nil {
		return err
	}
	state := stream.CachedInfo().State
	if mark := [2]uint64{state.LastSeq, state.Msgs}; mark == v.read {
		return nil
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(bucketSubject+">"))
	if err != nil {
		return err
	}
	gone := v.keys()
	for subject := range info.State.Subjects {
		key := strings.TrimPrefix(subject, bucketSubject)
		delete(gone, key)
		if err := v.look(ctx, key); err != nil {
			return err
		}
	}
	for _, i := range gone {
		v.put(i, nil)
	}
	v.read = [2]uint64{state.LastSeq, state.Msgs}
	return nil
}

// keys returns the cached secrets by the keys of their entries.
func (v *Vault) keys() map[string]id {
	v.mu.RLock()
	defer v.mu.RUnlock()
	keys := make(map[string]id, len(v.known))
	for i := range v.known {
		keys[i.key()] = i
	}
	return keys
}

// look reads one entry. A damaged one is stored without a value, so that it does not prevent reading the others.
func (v *Vault) look(ctx context.Context, key string) error {
	tenant, name, _ := strings.Cut(key, "/")
	entry, err := v.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrInvalidKey) {
		v.put(id{tenant, name}, nil)
		return nil
	}
	if err != nil {
		return err
	}
	var r record
	if json.Unmarshal(entry.Value(), &r) != nil {
		r = record{}
	}
	v.put(id{tenant, name}, &r)
	return nil
}

// put caches the bucket's entry; nil removes it.
func (v *Vault) put(i id, r *record) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if r == nil {
		delete(v.known, i)
	} else {
		v.known[i] = *r
	}
}

func (v *Vault) get(i id) (record, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	r, found := v.known[i]
	return r, found
}

// key returns the entry's key. Tenant names do not contain slashes.
func (i id) key() string { return i.tenant + "/" + i.name }

// bound returns the additional data of the encryption, so that a value cannot be moved to another tenant or name.
func (i id) bound() []byte { return []byte("outbid secret v1\n" + i.tenant + "\n" + i.name) }

// Set stores a secret or replaces its value. It returns a *state.LimitError if the tenant has too many.
func (v *Vault) Set(ctx context.Context, tenant, name, value, by string) (Info, error) {
	i := id{tenant, name}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	v.writing.Lock()
	defer v.writing.Unlock()
	if _, found := v.get(i); !found && len(v.List(tenant)) >= limits.Secrets {
		return Info{}, &state.LimitError{
			Limit: "secrets", Text: fmt.Sprintf("tenant %s has %d secrets; at most %d are allowed: remove one with 'outbid secret rm'",
				tenant, limits.Secrets, limits.Secrets),
		}
	}
	r := record{SetAt: v.now().UTC(), SetBy: by, Box: v.aead.Seal(nil, nil, []byte(value), i.bound())}
	data, err := json.Marshal(r)
	if err != nil {
		return Info{}, fmt.Errorf("store secret %s: %w", name, err)
	}
	if _, err := v.kv.Put(ctx, i.key(), data); err != nil {
		return Info{}, fmt.Errorf("store secret %s: %w", name, err)
	}
	v.put(i, &r)
	return r.info(i), nil
}

func (r record) info(i id) Info {
	return Info{Tenant: i.tenant, Name: i.name, SetAt: r.SetAt, SetBy: r.SetBy}
}

// List returns the secrets of a tenant by name.
func (v *Vault) List(tenant string) []Info {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var found []Info
	for i, r := range v.known {
		if i.tenant == tenant {
			found = append(found, r.info(i))
		}
	}
	slices.SortFunc(found, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// Has reports whether a tenant has a secret.
func (v *Vault) Has(tenant, name string) bool {
	_, found := v.get(id{tenant, name})
	return found
}

// Delete removes a secret completely from the bucket, or returns ErrMissing.
func (v *Vault) Delete(ctx context.Context, tenant, name string) error {
	i := id{tenant, name}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	v.writing.Lock()
	defer v.writing.Unlock()
	if _, found := v.get(i); !found {
		return fmt.Errorf("secret %s of tenant %s: %w", name, tenant, ErrMissing)
	}
	stream, err := v.js.Stream(ctx, "KV_"+Bucket)
	if err == nil {
		err = stream.Purge(ctx, jetstream.WithPurgeSubject(bucketSubject+i.key()))
	}
	if err != nil {
		return fmt.Errorf("remove secret %s: %w", name, err)
	}
	v.put(i, nil)
	return nil
}

// Resolve returns the environment for a trial's secrets, given as variable names with secret names. It returns
// ErrMissing for a secret that the tenant does not have.
func (v *Vault) Resolve(tenant string, wanted map[string]string) (map[string]string, error) {
	env := make(map[string]string, len(wanted))
	for _, variable := range slices.Sorted(maps.Keys(wanted)) {
		i := id{tenant, wanted[variable]}
		r, found := v.get(i)
		if !found {
			return nil, fmt.Errorf("%s: tenant %s has no secret %q now; set it with 'outbid secret set %s': %w", variable, tenant,
				i.name, i.name, ErrMissing)
		}
		value, err := v.aead.Open(nil, nil, r.Box, i.bound())
		if err != nil {
			return nil, fmt.Errorf("%s: secret %q of tenant %s is damaged or was stored with other keys of the cluster; set it again with "+
				"'outbid secret set %s'", variable, i.name, tenant, i.name)
		}
		env[variable] = string(value)
	}
	return env, nil
}
