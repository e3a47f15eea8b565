package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strings"
	"sync/atomic"

	"go.yaml.in/yaml/v3"

	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
)

// Limit is what one tenant may take of what all share.
type Limit struct {
	// LogBytes is how much of what the tenant's trials print is kept; the oldest goes first.
	LogBytes int64
	// BlobBytes is how much the functions of the tenant's sweeps may take in the store.
	BlobBytes int64
	// MaxWeight is the largest weight that the tenant's sweeps may have.
	MaxWeight float64
}

// defaultLimit is for tenants whom nobody gave another.
func defaultLimit() Limit { return Limit{LogBytes: 256 << 20, BlobBytes: 4 << 30, MaxWeight: 1} }

// leastLogBytes is the least that is of use.
const leastLogBytes = 1 << 20

// Limits knows what each tenant may take. Nil gives everybody the same.
type Limits struct {
	path  string
	table atomic.Pointer[limitTable]
}

type limitTable struct {
	rest    Limit
	tenants map[string]Limit
}

// limitsFile is the file as it is written.
type limitsFile struct {
	Default limitText            `yaml:"default"`
	Tenants map[string]limitText `yaml:"tenants"`
}

type limitText struct {
	LogBytes  string   `yaml:"log_bytes"`
	BlobBytes string   `yaml:"blob_bytes"`
	MaxWeight *float64 `yaml:"max_weight"`
}

// LoadLimits reads a YAML file of limits: those of tenants by name, and those of everybody else under default. What is
// left out is as it would be without a file.
func LoadLimits(path string) (*Limits, error) {
	l := &Limits{path: path}
	if _, err := l.Reload(); err != nil {
		return nil, err
	}
	return l, nil
}

// Reload reads the file again and says whether it holds other limits. After an error those of before stay.
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

// Of returns the limit of a tenant.
func (l *Limits) Of(tenant string) Limit {
	if l == nil {
		return defaultLimit()
	}
	table := l.table.Load()
	if limit, ok := table.tenants[tenant]; ok {
		return limit
	}
	return table.rest
}

func parseLimits(data []byte) (*limitTable, error) {
	var file limitsFile
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s; want default and tenants, each with log_bytes, blob_bytes, max_weight",
			strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n  ", " "))
	}
	rest, err := file.Default.over(defaultLimit())
	if err != nil {
		return nil, fmt.Errorf("default.%w", err)
	}
	table := &limitTable{rest: rest, tenants: map[string]Limit{}}
	slug := regexp.MustCompile(`^[a-z]([a-z0-9-]{0,40}[a-z0-9])?$`)
	for name, text := range file.Tenants {
		if !slug.MatchString(name) {
			return nil, fmt.Errorf("tenants: %q cannot be a tenant: want lower-case letters, digits and dashes", name)
		}
		if table.tenants[name], err = text.over(rest); err != nil {
			return nil, fmt.Errorf("tenants.%s.%w", name, err)
		}
	}
	return table, nil
}

// over is what is written, and of another limit what is not.
func (t limitText) over(base Limit) (Limit, error) {
	for _, size := range []struct {
		name, text string
		to         *int64
		least      int64
	}{{"log_bytes", t.LogBytes, &base.LogBytes, leastLogBytes}, {"blob_bytes", t.BlobBytes, &base.BlobBytes, 1}} {
		if size.text == "" {
			continue
		}
		n, err := terms.ParseBytes(size.text)
		if err != nil {
			return base, fmt.Errorf("%s: %w", size.name, err)
		}
		if n < size.least {
			return base, fmt.Errorf("%s: %q: want %d MiB or more", size.name, size.text, size.least>>20)
		}
		*size.to = n
	}
	if w := t.MaxWeight; w != nil {
		if !(*w > 0) || math.IsInf(*w, 0) {
			return base, fmt.Errorf("max_weight: %v: want a number above 0", *w)
		}
		base.MaxWeight = *w
	}
	return base, nil
}

// checkWeight refuses a sweep that would weigh more than its tenant may. Admins may do what they like.
func (limit Limit) checkWeight(who Principal, tenant string, weight float64) error {
	if who.Role == RoleAdmin || weight <= limit.MaxWeight {
		return nil
	}
	return fieldError("weight", "%v is more than the %v that tenant %s may have; an admin grants more "+
		"(outbid tenant set %s --max-weight, or serve --limits)", weight, limit.MaxWeight, tenant, tenant)
}
