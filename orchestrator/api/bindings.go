package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/spec"
)

// Bindings decide what a person may do who signed in with an identity provider.
type Bindings interface {
	// Bind returns the caller for a verified name and the person's groups, or an error that names both.
	Bind(name string, groups []string) (Principal, error)
}

// FileBindings are the Bindings of a YAML file.
type FileBindings struct {
	path    string
	entries atomic.Pointer[[]binding]
}

// binding gives a user or the members of a group a role in a tenant.
type binding struct {
	User   string `yaml:"user"`
	Group  string `yaml:"group"`
	Tenant string `yaml:"tenant"`
	Role   Role   `yaml:"role"`
}

// LoadBindings reads a YAML file that is a list of {user, tenant, role} and {group, tenant, role}.
func LoadBindings(path string) (*FileBindings, error) {
	b := &FileBindings{path: path}
	if _, err := b.Reload(); err != nil {
		return nil, err
	}
	return b, nil
}

// Reload reads the file again, and reports whether the bindings changed. After an error the previous bindings stay in
// force.
func (b *FileBindings) Reload() (changed bool, err error) {
	data, err := os.ReadFile(b.path)
	if err != nil {
		return false, fmt.Errorf("open bindings: %w", err)
	}
	list, err := parseBindings(data)
	if err != nil {
		return false, fmt.Errorf("bindings %s: %w", b.path, err)
	}
	old := b.entries.Swap(&list)
	return old != nil && !slices.Equal(*old, list), nil
}

func parseBindings(data []byte) ([]binding, error) {
	if err := spec.SyntaxError(data); err != nil {
		return nil, err
	}
	var list []binding
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&list); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s; must be a list such as [{group: vision, tenant: vision, role: user}]",
			strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n  ", " "))
	}
	for i, entry := range list {
		if err := entry.check(); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
	}
	return list, nil
}

func (b binding) check() error {
	switch {
	case b.User == "" && b.Group == "":
		return errors.New("user: must be a user's name, unless group is a group's; got neither")
	case b.User != "" && b.Group != "":
		return fmt.Errorf("user: must not be given with a group, got user %q and group %q; write two entries", b.User, b.Group)
	case b.Tenant == "":
		return fmt.Errorf("tenant: must be a tenant's name, or %q for every tenant; got nothing", AnyTenant)
	case b.Role == "":
		return fmt.Errorf("role: must be %s; got nothing", roleNames())
	}
	return checkPrincipal(Principal{Name: "user", Tenant: b.Tenant, Role: b.Role})
}

// roleNames lists the roles for errors.
func roleNames() string {
	var names []string
	for _, r := range Roles() {
		names = append(names, string(r))
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// Bind implements Bindings. The first entry that matches gives the tenant and the role; later ones with the same role
// add their tenants.
func (b *FileBindings) Bind(name string, groups []string) (Principal, error) {
	var who Principal
	var more []string
	for _, entry := range *b.entries.Load() {
		if entry.User != name && !slices.Contains(groups, entry.Group) {
			continue
		}
		if who.Name == "" {
			who = Principal{Name: name, Tenant: entry.Tenant, Role: entry.Role}
		} else if entry.Role == who.Role {
			more = append(more, entry.Tenant)
		}
	}
	if slices.Contains(more, AnyTenant) {
		who.Tenant = AnyTenant
	}
	if len(more) > 0 {
		who.also = &memberships{more}
	}
	if who.Name == "" {
		return who, errUnbound(name, groups)
	}
	return who, nil
}

// maxShownGroups limits the groups in an error.
const maxShownGroups = 20

// errUnbound is the error for a person without a binding.
func errUnbound(name string, groups []string) error {
	in := "is in no group"
	if len(groups) > 0 {
		shown := make([]string, 0, maxShownGroups)
		for _, g := range groups[:min(len(groups), maxShownGroups)] {
			shown = append(shown, strconv.Quote(g))
		}
		in = "is in the groups " + strings.Join(shown, ", ")
		if rest := len(groups) - len(shown); rest > 0 {
			in += fmt.Sprintf(" and %d more", rest)
		}
	}
	return status.Errorf(codes.PermissionDenied, "user %q signed in but has no role here: the user %s; an admin must bind the user or a group "+
		"to a tenant and a role", name, in)
}
