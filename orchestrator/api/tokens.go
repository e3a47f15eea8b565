package api

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/accounts"
)

// AnyTenant as a token's tenant means every tenant.
const AnyTenant = "*"

// Principal is an authenticated caller.
type Principal struct {
	// Name is recorded in events as the actor.
	Name   string
	Tenant string
	Role   Role

	// local is set for a caller without a token.
	local bool
	// scopes restrict what the caller may do within the role; 0 means no restriction.
	scopes scopeSet
	// also has further tenants for which the caller may act, or is nil.
	also *memberships
}

// owns reports whether the caller may access a tenant.
func (p Principal) owns(tenant string) bool {
	return p.Role == RoleAdmin || p.Tenant == AnyTenant || p.Tenant == tenant || p.also != nil && slices.Contains(p.also.tenants, tenant)
}

// localPrincipal returns the caller when no tokens are configured, which is allowed only on loopback.
func localPrincipal() Principal {
	return Principal{Name: "local", Tenant: AnyTenant, Role: RoleAdmin, local: true}
}

// Tokens holds the hashes of bearer tokens.
type Tokens struct {
	path string
	// entries are those of the file, issued the API tokens, and every both.
	entries, issued, every atomic.Pointer[[]tokenEntry]
	joining                sync.Mutex
	// changed receives the changes of a reload; it may be nil.
	changed func([]TokenChange)
}

// TokenChange is a change of a tokens file. Before is the zero value for an added token, After for a removed one. Equal
// values mean that the token was replaced.
type TokenChange struct{ Before, After Principal }

// OnChange sets a function that receives the changes of each Reload. It must be called before Reload.
func (t *Tokens) OnChange(f func([]TokenChange)) { t.changed = f }

// changesOf returns how two lists of tokens differ, by the names of the holders.
func changesOf(before, after []tokenEntry) (changes []TokenChange) {
	old := map[string]tokenEntry{}
	for _, e := range before {
		old[e.who.Name] = e
	}
	for _, e := range after {
		was, known := old[e.who.Name]
		delete(old, e.who.Name)
		if !known || was != e {
			changes = append(changes, TokenChange{was.who, e.who})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old)) {
		changes = append(changes, TokenChange{Before: old[name].who})
	}
	return changes
}

type tokenEntry struct {
	hash [sha256.Size]byte
	who  Principal
	// until is when an API token expires; it is zero for a token of the file.
	until time.Time
	// account is the API token's account, or nil.
	account *accounts.Account
}

// isValid reports whether a token has not expired.
func (e *tokenEntry) isValid(now time.Time) bool { return e.until.IsZero() || now.Before(e.until) }

const minTokenLength = 20

// LoadTokens reads a file of tokens. Each line has a token, a name, a tenant (or "*") and a role, separated by blanks.
// Empty lines and lines that start with # are skipped.
func LoadTokens(path string) (*Tokens, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("tokens file %s does not exist; create it with: outbid token new --file %s --name NAME", path, path)
	}
	if err != nil {
		return nil, fmt.Errorf("open tokens: %w", err)
	}
	defer f.Close()
	t, err := ParseTokens(f, path)
	if err != nil {
		return nil, err
	}
	t.path = path
	return t, nil
}

// Reload reads the file again, and reports whether the tokens changed. After an error the previous tokens stay valid.
func (t *Tokens) Reload() (changed bool, err error) {
	if t.path == "" {
		return false, nil
	}
	now, err := LoadTokens(t.path)
	if err != nil {
		return false, err
	}
	if slices.Equal(t.ofFile(), now.ofFile()) {
		return false, nil
	}
	changes := changesOf(t.ofFile(), now.ofFile())
	t.entries.Store(now.entries.Load())
	t.join()
	if t.changed != nil {
		t.changed(changes)
	}
	return true, nil
}

// ofFile returns the tokens of the file.
func (t *Tokens) ofFile() []tokenEntry { return listOf(&t.entries) }

// all returns the tokens of the file and the API tokens, also those that have expired.
func (t *Tokens) all() []tokenEntry { return listOf(&t.every) }

func listOf(p *atomic.Pointer[[]tokenEntry]) []tokenEntry {
	if list := p.Load(); list != nil {
		return *list
	}
	return nil
}

// join makes one list of the tokens of the file and the API tokens.
func (t *Tokens) join() {
	t.joining.Lock()
	defer t.joining.Unlock()
	both := slices.Concat(t.ofFile(), listOf(&t.issued))
	t.every.Store(&both)
}

// ParseTokens reads tokens from r as LoadTokens does. name is the file's name in errors, which never show a token.
func ParseTokens(r io.Reader, name string) (*Tokens, error) {
	t := &Tokens{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := t.add(strings.Fields(line)); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read tokens from %s: %w", name, err)
	}
	if len(t.ofFile()) == 0 {
		return nil, fmt.Errorf("%s does not contain a token; create one with: outbid token new --file %s --name NAME", name, name)
	}
	return t, nil
}

func (t *Tokens) add(fields []string) error {
	if len(fields) != 4 {
		return fmt.Errorf("a line must have a token, a name, a tenant and a role, got %d words", len(fields))
	}
	token, who := fields[0], Principal{Name: fields[1], Tenant: fields[2], Role: Role(fields[3])}
	if len(token) < minTokenLength {
		return fmt.Errorf("the token of %s is %d characters long; at least %d are needed", who.Name, len(token), minTokenLength)
	}
	if err := checkPrincipal(who); err != nil {
		return err
	}
	hash := sha256.Sum256([]byte(token))
	list := t.ofFile()
	for _, e := range list {
		if e.hash == hash {
			return fmt.Errorf("%s and %s have the same token", e.who.Name, who.Name)
		}
	}
	list = append(list, tokenEntry{hash: hash, who: who})
	t.entries.Store(&list)
	t.join()
	return nil
}

// find returns the holder of a token. Its duration does not depend on which token of the file matches.
func (t *Tokens) find(token string) (Principal, bool) {
	hash := sha256.Sum256([]byte(token))
	list, found := t.all(), -1
	for i := range list {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], list[i].hash[:]), i, found)
	}
	now := time.Now()
	if found < 0 || !list[found].isValid(now) {
		return Principal{}, false
	}
	if a := list[found].account; a != nil {
		a.Use(now)
	}
	return list[found].who, true
}

// holder returns the principal of the valid token with a name.
func (t *Tokens) holder(name string) (Principal, bool) {
	if t == nil {
		return Principal{}, false
	}
	now := time.Now()
	for _, e := range t.all() {
		if e.who.Name == name && e.isValid(now) {
			return e.who, true
		}
	}
	return Principal{}, false
}

func (t *Tokens) hasName(name string) bool {
	for _, e := range t.ofFile() {
		if e.who.Name == name {
			return true
		}
	}
	return false
}

func checkPrincipal(who Principal) error {
	word := regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]*$`)
	if !word.MatchString(who.Name) {
		return fmt.Errorf("name %q: letters, digits and . _ @ - only", who.Name)
	}
	if who.Tenant != AnyTenant && !word.MatchString(who.Tenant) {
		return fmt.Errorf("tenant %q: letters, digits and . _ @ - only, or * for every tenant", who.Tenant)
	}
	if who.Role.needsEveryTenant() && who.Tenant != AnyTenant {
		return fmt.Errorf("tenant %q: must be * for the role %s, because nodes do not belong to a tenant", who.Tenant, who.Role)
	}
	return checkRole(who.Role)
}

// MakeToken creates a token of 256 random bits, adds it to the file at path, and returns it. A new file is readable
// only by its owner. Each name may have only one token.
func MakeToken(path string, who Principal) (string, error) {
	if err := checkPrincipal(who); err != nil {
		return "", err
	}
	old, err := LoadTokens(path)
	if _, statErr := os.Stat(path); statErr == nil && err != nil {
		return "", err
	}
	if old != nil && old.hasName(who.Name) {
		return "", fmt.Errorf("%s already holds a token for %s; remove its line first", path, who.Name)
	}
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	token := "outbid_" + base64.RawURLEncoding.EncodeToString(raw)
	line := fmt.Sprintf("%s %s %s %s\n", token, who.Name, who.Tenant, who.Role)
	if err := appendLine(path, line); err != nil {
		return "", fmt.Errorf("write token: %w", err)
	}
	return token, nil
}

func appendLine(path, line string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}
