// Package accounts stores the API tokens that a server issues to tools: names, roles, scopes and expiry in a key-value
// bucket of NATS, like the secrets of tenants. Of the tokens themselves it stores only hashes.
package accounts

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/state"
)

// Bucket is the key-value bucket of the tokens. Workers cannot read it, and it does not keep a history.
const Bucket = "OUTBID_TOKENS"

const (
	// patience limits each call to NATS.
	patience = 10 * time.Second
	// useEvery is how often the times of the last uses are stored.
	useEvery = 10 * time.Minute
	// watchAgain is when the bucket is watched again after NATS did not answer.
	watchAgain = time.Second
)

var (
	// ErrMissing means that a tenant does not have a token with that name.
	ErrMissing = errors.New("there is no such token")
	// ErrExists means that a tenant has a token with that name.
	ErrExists = errors.New("there is a token with this name")
)

// Account is an API token without the token. Accounts do not change.
type Account struct {
	Tenant, Name string
	Role         string
	// Scopes restrict what it may do within its role; empty means no restriction.
	Scopes    []string
	Created   time.Time
	CreatedBy string
	Expires   time.Time
	// Keys are the hashes of the valid tokens: one, or two for a while after a rotation.
	Keys []Key

	used     *atomic.Int64
	revision uint64
}

// Key is the SHA-256 of a token, in hex, and when the token expires.
type Key struct {
	Hash  string    `json:"hash"`
	Until time.Time `json:"until"`
}

// Use records that a token of the account was used now.
func (a *Account) Use(now time.Time) { a.used.Store(now.Unix()) }

// LastUsed returns when the account was last used, or zero.
func (a *Account) LastUsed() time.Time {
	if at := a.used.Load(); at > 0 {
		return time.Unix(at, 0)
	}
	return time.Time{}
}

// record is an entry of the bucket.
type record struct {
	Role      string    `json:"role"`
	Scopes    []string  `json:"scopes,omitempty"`
	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by"`
	Expires   time.Time `json:"expires"`
	LastUsed  int64     `json:"last_used,omitempty"`
	Keys      []Key     `json:"keys"`
}

// key returns the entry's key. Keys cannot contain *, and tenants do not begin with =.
func key(tenant, name string) string {
	if tenant == "*" {
		tenant = "="
	}
	return tenant + "/" + name
}

// Config configures a Store.
type Config struct {
	// Replicas of the bucket in a NATS cluster; 0 means 1.
	Replicas int
	// Now is the clock.
	Now func() time.Time
	// Changed receives every account after each change, before the call that made it returns.
	Changed func([]*Account)
	Logger  *slog.Logger
}

// Store stores accounts. It is safe for concurrent use. It follows the bucket, so that it also has what a previous leader
// wrote late.
type Store struct {
	kv  jetstream.KeyValue
	cfg Config

	// writing is held during a write, so that names stay unique and the limit is enforced.
	writing sync.Mutex
	mu      sync.Mutex
	known   map[string]*Account
	// stored has the last uses that the bucket has, by key.
	stored map[string]int64
	// revoked has the last revision of each account that this process revoked: later news of it are old.
	revoked map[string]uint64
}

// Open opens the bucket, which it creates if missing, and reads it.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Store, error) {
	s, err := open(ctx, nc, cfg)
	if err != nil {
		return nil, fmt.Errorf("open the API tokens: %w", err)
	}
	return s, nil
}

func open(ctx context.Context, nc *nats.Conn, cfg Config) (*Store, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	kv, err := bus.MakeBucket(ctx, js, jetstream.KeyValueConfig{
		Bucket: Bucket, Description: "hashes of API tokens", History: 1, Storage: jetstream.FileStorage, Replicas: max(cfg.Replicas, 1),
	})
	if err != nil {
		return nil, err
	}
	s := &Store{kv: kv, cfg: cfg, known: map[string]*Account{}, stored: map[string]int64{}, revoked: map[string]uint64{}}
	return s, s.load(ctx)
}

// load reads every entry.
func (s *Store) load(ctx context.Context) error {
	watcher, err := s.kv.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Stop() }()
	for {
		select {
		case entry, open := <-watcher.Updates():
			if !open || entry == nil {
				s.changed()
				return nil
			}
			s.apply(entry)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Follow applies changes of the bucket, and stores the times of last uses, until ctx ends.
func (s *Store) Follow(ctx context.Context) error {
	watcher, err := s.watch(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Stop() }()
	tick := time.NewTicker(useEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.StoreUses(ctx)
		case entry := <-watcher.Updates():
			if entry != nil {
				s.apply(entry)
				s.changed()
			}
		}
	}
}

// watch watches the bucket. It waits for a NATS that is away.
func (s *Store) watch(ctx context.Context) (jetstream.KeyWatcher, error) {
	again := time.NewTicker(watchAgain)
	defer again.Stop()
	for {
		watcher, err := s.kv.WatchAll(ctx)
		if err == nil || ctx.Err() != nil || !bus.IsAway(err) {
			if err != nil {
				err = fmt.Errorf("follow the API tokens: %w", err)
			}
			return watcher, err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// apply puts an entry of the bucket into the cache unless the cache has a newer one.
func (s *Store) apply(entry jetstream.KeyValueEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.known[entry.Key()]
	if old != nil && old.revision > entry.Revision() || entry.Revision() <= s.revoked[entry.Key()] {
		return
	}
	if entry.Operation() != jetstream.KeyValuePut {
		delete(s.known, entry.Key())
		return
	}
	var r record
	if err := json.Unmarshal(entry.Value(), &r); err != nil {
		s.cfg.Logger.Error("an API token is damaged and not valid; revoke it", "token", entry.Key(), "err", err)
		delete(s.known, entry.Key())
		return
	}
	s.keep(entry.Key(), r, entry.Revision())
}

// keep caches a record. mu must be held.
func (s *Store) keep(id string, r record, revision uint64) *Account {
	tenant, name, _ := strings.Cut(id, "/")
	if tenant == "=" {
		tenant = "*"
	}
	a := &Account{
		Tenant: tenant, Name: name, Role: r.Role, Scopes: r.Scopes, Created: r.Created, CreatedBy: r.CreatedBy, Expires: r.Expires, Keys: r.Keys,
		used: &atomic.Int64{}, revision: revision,
	}
	if old := s.known[id]; old != nil {
		a.used = old.used
	}
	if r.LastUsed > a.used.Load() {
		a.used.Store(r.LastUsed)
	}
	s.known[id], s.stored[id] = a, r.LastUsed
	return a
}

// changed reports every account.
func (s *Store) changed() {
	if s.cfg.Changed != nil {
		s.cfg.Changed(s.List(""))
	}
}

// List returns the accounts of a tenant, or of all if it is "", by tenant and name.
func (s *Store) List(tenant string) []*Account {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*Account
	for _, a := range s.known {
		if tenant == "" || a.Tenant == tenant {
			found = append(found, a)
		}
	}
	slices.SortFunc(found, func(a, b *Account) int { return strings.Compare(key(a.Tenant, a.Name), key(b.Tenant, b.Name)) })
	return found
}

func (s *Store) get(id string) *Account {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[id]
}

// newToken returns a token of 256 random bits and its key.
func newToken(until time.Time) (string, Key) {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	token := "outbid_" + base64.RawURLEncoding.EncodeToString(raw)
	sum := sha256.Sum256([]byte(token))
	return token, Key{hex.EncodeToString(sum[:]), until}
}

// Create stores an account with a new token, which it returns. The fields Tenant, Name, Role, Scopes, CreatedBy and
// Expires of wanted are used.
func (s *Store) Create(ctx context.Context, wanted Account) (token string, created *Account, err error) {
	id := key(wanted.Tenant, wanted.Name)
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.get(id) != nil {
		return "", nil, fmt.Errorf("%w: %s of tenant %s; rotate or revoke it", ErrExists, wanted.Name, wanted.Tenant)
	}
	if n := len(s.List(wanted.Tenant)); n >= limits.Tokens {
		return "", nil, &state.LimitError{Limit: "tokens", Tenant: wanted.Tenant, Text: fmt.Sprintf(
			"tenant %s has %d API tokens; at most %d are allowed: revoke one with 'outbid token revoke'", wanted.Tenant, n, limits.Tokens)}
	}
	token, k := newToken(wanted.Expires)
	created, err = s.put(ctx, id, record{
		Role: wanted.Role, Scopes: wanted.Scopes, Created: s.cfg.Now().UTC(), CreatedBy: wanted.CreatedBy, Expires: wanted.Expires.UTC(), Keys: []Key{k},
	}, 0)
	return token, created, err
}

// Rotate gives an account another token, which it returns. The old one is valid for overlap.
func (s *Store) Rotate(ctx context.Context, tenant, name string, expires time.Time, overlap time.Duration) (token string, a *Account, err error) {
	id, now := key(tenant, name), s.cfg.Now()
	s.writing.Lock()
	defer s.writing.Unlock()
	if a = s.get(id); a == nil {
		return "", nil, missing(tenant, name)
	}
	token, k := newToken(expires.UTC())
	keys := []Key{k}
	if old := a.Keys[0]; overlap > 0 {
		old.Until = earlier(old.Until, now.Add(overlap).UTC())
		keys = append(keys, old)
	}
	a, err = s.put(ctx, id, record{
		Role: a.Role, Scopes: a.Scopes, Created: a.Created, CreatedBy: a.CreatedBy, Expires: expires.UTC(), LastUsed: a.used.Load(), Keys: keys,
	}, a.revision)
	return token, a, err
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Revoke removes an account with its tokens.
func (s *Store) Revoke(ctx context.Context, tenant, name string) error {
	id := key(tenant, name)
	s.writing.Lock()
	defer s.writing.Unlock()
	a := s.get(id)
	if a == nil {
		return missing(tenant, name)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.kv.Purge(ctx, id); err != nil {
		return fmt.Errorf("revoke token %s: %w", name, err)
	}
	s.mu.Lock()
	delete(s.known, id)
	s.revoked[id] = a.revision
	s.mu.Unlock()
	s.changed()
	return nil
}

func missing(tenant, name string) error {
	return fmt.Errorf("%w: %s of tenant %s", ErrMissing, name, tenant)
}

// put writes a record over the one with a revision, 0 for none, and caches it.
func (s *Store) put(ctx context.Context, id string, r record, over uint64) (*Account, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("store token %s: %w", id, err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var revision uint64
	if over == 0 {
		revision, err = s.kv.Create(ctx, id, data)
	} else {
		revision, err = s.kv.Update(ctx, id, data, over)
	}
	if err != nil {
		return nil, fmt.Errorf("store token %s: %w", id, err)
	}
	s.mu.Lock()
	a := s.keep(id, r, revision)
	s.mu.Unlock()
	s.changed()
	return a, nil
}

// StoreUses stores the times of last uses that the bucket does not have. A token that is revoked at the same time stays
// revoked, because an update requires its revision.
func (s *Store) StoreUses(ctx context.Context) {
	s.writing.Lock()
	defer s.writing.Unlock()
	for _, a := range s.List("") {
		id := key(a.Tenant, a.Name)
		s.mu.Lock()
		behind := s.stored[id] < a.used.Load()
		s.mu.Unlock()
		if !behind {
			continue
		}
		_, err := s.put(ctx, id, record{
			Role: a.Role, Scopes: a.Scopes, Created: a.Created, CreatedBy: a.CreatedBy, Expires: a.Expires, LastUsed: a.used.Load(), Keys: a.Keys,
		}, a.revision)
		if err != nil {
			s.cfg.Logger.Debug("the last use of an API token was not stored", "err", err)
		}
	}
}
