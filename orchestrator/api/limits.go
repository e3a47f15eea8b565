package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync/atomic"

	"go.yaml.in/yaml/v3"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/spec"
)

// Limits holds the limits of each tenant. A nil Limits gives every tenant the defaults.
type Limits struct {
	path  string
	table atomic.Pointer[limitTable]
}

type limitTable struct {
	rest    limits.Tenant
	tenants map[string]limits.Tenant
}

// limitsFile is the content of the YAML file.
type limitsFile struct {
	Default map[string]string            `yaml:"default"`
	Tenants map[string]map[string]string `yaml:"tenants"`
}

// LoadLimits reads a YAML file with limits: by tenant name, and under default for all other tenants. Limits that are
// not in the file have their built-in defaults.
func LoadLimits(path string) (*Limits, error) {
	l := &Limits{path: path}
	if _, err := l.Reload(); err != nil {
		return nil, err
	}
	return l, nil
}

// Reload reads the file again, and reports whether the limits changed. After an error the previous limits stay in
// force.
func (l *Limits) Reload() (changed bool, err error) {
	data, err := os.ReadFile(l.path)
	if err != nil {
		return false, fmt.Errorf("open limits: %w", err)
	}
	table, err := parseLimits(data)
	if err != nil {
		return false, fmt.Errorf("limits %s: %w", l.path, err)
	}
	old := l.table.Swap(table)
	return old != nil && !old.equal(table), nil
}

func (t *limitTable) equal(o *limitTable) bool {
	if t.rest != o.rest || len(t.tenants) != len(o.tenants) {
		return false
	}
	for name, limit := range t.tenants {
		if other, ok := o.tenants[name]; !ok || other != limit {
			return false
		}
	}
	return true
}

// Of returns the limits of a tenant according to the file.
func (l *Limits) Of(tenant string) limits.Tenant {
	if l == nil {
		return limits.Default()
	}
	table := l.table.Load()
	if limit, ok := table.tenants[tenant]; ok {
		return limit
	}
	return table.rest
}

func parseLimits(data []byte) (*limitTable, error) {
	if err := spec.SyntaxError(data); err != nil {
		return nil, err
	}
	var file limitsFile
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s; want default and tenants, each with limits by name (%s)",
			strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n  ", " "), limits.Names())
	}
	rest, err := limits.ParseOver(limits.Default(), file.Default)
	if err != nil {
		return nil, fmt.Errorf("default.%w", err)
	}
	table := &limitTable{rest: rest, tenants: map[string]limits.Tenant{}}
	slug := regexp.MustCompile(`^[a-z]([a-z0-9-]{0,40}[a-z0-9])?$`)
	for name, texts := range file.Tenants {
		if !slug.MatchString(name) {
			return nil, fmt.Errorf("tenants: %q cannot be a tenant: want lower-case letters, digits and dashes", name)
		}
		if table.tenants[name], err = limits.ParseOver(rest, texts); err != nil {
			return nil, fmt.Errorf("tenants.%s.%w", name, err)
		}
	}
	return table, nil
}

// checkWeight rejects a sweep with a higher weight than its tenant's limit. Admins are exempt.
func checkWeight(limit limits.Tenant, who Principal, tenant string, weight float64) error {
	if who.Role == RoleAdmin || weight <= limit.MaxWeight {
		return nil
	}
	return fieldError("weight", "%v is more than the %v that tenant %s may have; an admin grants more "+
		"(outbid tenant set %s --max-weight, or serve --limits)", weight, limit.MaxWeight, tenant, tenant)
}
