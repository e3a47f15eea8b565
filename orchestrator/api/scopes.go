package api

import (
	"fmt"
	"slices"
	"strings"
)

// scopeSet is a set of permissions, one bit each.
type scopeSet uint32

// scopeNames are the permissions that can be scopes, by their names. The permission for tokens is not among them, so a
// token with scopes cannot create a token without.
func scopeNames() map[string]access {
	return map[string]access{
		"read": read, "content": readContent, "write": write, "tenant": manageTenant, "nodes": operate, "audit": readAudit, "ledger": readEvents,
	}
}

// Scopes returns the names of the scopes.
func Scopes() []string {
	return []string{"read", "content", "write", "tenant", "nodes", "audit", "ledger"}
}

// scope returns the name of a permission's scope.
func (a access) scope() string {
	for name, need := range scopeNames() {
		if need == a {
			return name
		}
	}
	return "of tokens without scopes"
}

func (s scopeSet) has(need access) bool { return s&(1<<need) != 0 }

// String lists the scopes.
func (s scopeSet) String() string {
	var names []string
	for _, name := range Scopes() {
		if s.has(scopeNames()[name]) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// parseScopes returns the set of scopes with these names.
func parseScopes(names []string) (set scopeSet, err error) {
	for _, name := range names {
		need, ok := scopeNames()[name]
		if !ok {
			return 0, fmt.Errorf("%q: must be one of %s", name, strings.Join(Scopes(), ", "))
		}
		set |= 1 << need
	}
	return set, nil
}

// allows reports whether the caller's role and scopes grant a permission.
func (p Principal) allows(need access) bool {
	return p.Role.allows(need) && (p.scopes == 0 || need == open || need == anyRole || p.scopes.has(need))
}

// hidesEnv reports whether the caller reads sweeps without the values of their environment variables.
func (p Principal) hidesEnv() bool { return !p.allows(readContent) }

// mayGive reports whether the caller may create or change a token with a tenant and a role.
func (p Principal) mayGive(tenant string, role Role) bool {
	return p.Role == RoleAdmin ||
		p.administers(tenant) && slices.Contains([]Role{RoleTenantAdmin, RoleUser, RoleViewer, RoleViewerNoLogs}, role)
}
