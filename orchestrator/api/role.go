package api

import (
	"fmt"
	"slices"
	"strings"
)

// Role defines what the holder of a token may do.
type Role string

// The roles.
const (
	// RoleAdmin may do everything with every tenant's sweeps.
	RoleAdmin Role = "admin"
	// RoleOperator may open and close nodes and let workers join. It reads what RoleViewerNoLogs reads, of every tenant.
	RoleOperator Role = "operator"
	// RoleAuditor may read the audit and, with the tenant "*", the ledger. It reads what RoleViewerNoLogs reads.
	RoleAuditor Role = "auditor"
	// RoleTenantAdmin may do what RoleUser may, and set the tenant's members.
	RoleTenantAdmin Role = "tenant-admin"
	// RoleUser may do everything with the tenant's sweeps except read the ledger or run tuner plugins.
	RoleUser Role = "user"
	// RoleViewer may read the tenant's sweeps.
	RoleViewer Role = "viewer"
	// RoleViewerNoLogs may read the tenant's sweeps, except trials' output, checkpoints and environment variables.
	RoleViewerNoLogs Role = "viewer-nologs"
	// RoleMetrics may read only /metrics.
	RoleMetrics Role = "metrics"
)

// Roles returns every role: admin first, metrics last.
func Roles() []Role {
	return []Role{RoleAdmin, RoleOperator, RoleAuditor, RoleTenantAdmin, RoleUser, RoleViewer, RoleViewerNoLogs, RoleMetrics}
}

// permissions returns what a role grants. RoleAdmin has every permission.
func (r Role) permissions() []access {
	switch r {
	case RoleOperator:
		return []access{read, operate}
	case RoleAuditor:
		return []access{read, readAudit, readEvents}
	case RoleTenantAdmin:
		return []access{read, readContent, write, manageTenant, manageTokens}
	case RoleUser:
		return []access{read, readContent, write}
	case RoleViewer:
		return []access{read, readContent}
	case RoleViewerNoLogs:
		return []access{read}
	}
	return nil
}

// allows reports whether the role grants a permission.
func (r Role) allows(need access) bool {
	return need == open || need == anyRole || r == RoleAdmin || slices.Contains(r.permissions(), need)
}

// needsEveryTenant reports whether a token of the role must have AnyTenant as its tenant, because nodes belong to none.
func (r Role) needsEveryTenant() bool { return r == RoleOperator }

// rolesWith lists the roles that grant a permission.
func rolesWith(need access) string {
	var names []string
	for _, r := range Roles() {
		if r.allows(need) {
			names = append(names, string(r))
		}
	}
	if len(names) == 1 {
		return "the role " + names[0]
	}
	return "the role " + strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// checkRole returns an error for a role that does not exist.
func checkRole(r Role) error {
	if slices.Contains(Roles(), r) {
		return nil
	}
	names := make([]string, 0, len(Roles()))
	for _, known := range Roles() {
		names = append(names, string(known))
	}
	last := len(names) - 1
	return fmt.Errorf("role %q: must be %s or %s", r, strings.Join(names[:last], ", "), names[last])
}
