package limits

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// None is the text for no limit.
	None = "none"
	// Inherit is the text for a limit that is not set, so the server's applies.
	Inherit = "default"
	// MaxWeight is the name of the only limit that is not a whole number.
	MaxWeight = "max_weight"
)

// Parse parses the value of a limit: a whole number, or a size such as 4GiB, or None. The error names valid values.
func (f Field) Parse(text string) (int64, error) {
	if text == None {
		return Unlimited, nil
	}
	if f.Unit == Count {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < f.Least {
			return 0, fmt.Errorf("%q: want a whole number of at least %d, or %s", text, f.Least, None)
		}
		return n, nil
	}
	if f.Unit == Age {
		return f.parseAge(text)
	}
	n, err := terms.ParseBytes(text)
	if err != nil {
		return 0, fmt.Errorf("%w, or %s", err, None)
	}
	if n < f.Least {
		return 0, fmt.Errorf("%q: want %s or more, or %s", text, f.Format(f.Least), None)
	}
	return n, nil
}

// parseAge parses a time in whole seconds; it may end in d for days.
func (f Field) parseAge(text string) (int64, error) {
	d, err := time.ParseDuration(text)
	if days, found := strings.CutSuffix(text, "d"); found {
		var n int64
		n, err = strconv.ParseInt(days, 10, 32)
		d = time.Duration(min(n, maxDays)) * day
	}
	if seconds := int64(d / time.Second); err == nil && seconds >= f.Least && d%time.Second == 0 {
		return seconds, nil
	}
	return 0, fmt.Errorf("%q: want a time of at least %s, such as 36h or 90d, or %s", text, f.Format(f.Least), None)
}

const (
	day = 24 * time.Hour
	// maxDays is the longest time in days, a hundred years.
	maxDays = 36_500
)

// Format formats the value of a limit for Parse.
func (f Field) Format(value int64) string {
	if value == Unlimited {
		return None
	}
	if f.Unit == Count {
		return strconv.FormatInt(value, 10)
	}
	if f.Unit == Age {
		if d := time.Duration(value) * time.Second; d%day != 0 {
			return d.String()
		}
		return fmt.Sprintf("%dd", value/int64(day/time.Second))
	}
	for _, unit := range []struct {
		name string
		size int64
	}{{"TiB", tib}, {"GiB", gib}, {"MiB", mib}, {"KiB", kib}} {
		if value >= unit.size && value%unit.size == 0 {
			return fmt.Sprintf("%d%s", value/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%dB", value)
}

// Over returns base with the limits that are set for a tenant. The error names the field.
func Over(base Tenant, set *outbidv1.TenantLimits) (Tenant, error) {
	if set == nil {
		return base, nil
	}
	m := set.ProtoReflect()
	for _, f := range Fields() {
		field := m.Descriptor().Fields().ByName(protoreflect.Name(f.Name))
		if field == nil || !m.Has(field) {
			continue
		}
		value, err := f.valueOf(m.Get(field), field.Kind())
		if err != nil {
			return base, fmt.Errorf("%s: %w", f.Name, err)
		}
		*f.At(&base) = value
	}
	if set.MaxWeight != nil {
		if err := checkWeight(set.GetMaxWeight()); err != nil {
			return base, err
		}
		base.MaxWeight = set.GetMaxWeight()
	}
	return base, nil
}

func (f Field) valueOf(v protoreflect.Value, kind protoreflect.Kind) (int64, error) {
	if kind == protoreflect.StringKind {
		return f.Parse(v.String())
	}
	if n := v.Int(); n == Unlimited || n >= f.Least {
		return n, nil
	}
	return 0, fmt.Errorf("%d: want a whole number of at least %d, or %d for no limit", v.Int(), f.Least, Unlimited)
}

func checkWeight(w float64) error {
	if !(w > 0) {
		return fmt.Errorf("%s: %v: want a number above 0", MaxWeight, w)
	}
	return nil
}

// Set sets a limit of a tenant by its name, or removes the setting if the text is Inherit. The error describes what is
// wrong with the text.
func Set(set *outbidv1.TenantLimits, name, text string) error {
	m := set.ProtoReflect()
	field := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	if text == Inherit {
		m.Clear(field)
		return nil
	}
	if name == MaxWeight {
		w, err := parseWeight(text)
		if err == nil {
			set.MaxWeight = &w
		}
		return err
	}
	for _, f := range Fields() {
		if f.Name != name {
			continue
		}
		n, err := f.Parse(text)
		if err != nil {
			return fmt.Errorf("%w, or %s", err, Inherit)
		}
		if field.Kind() == protoreflect.StringKind {
			m.Set(field, protoreflect.ValueOfString(text))
		} else {
			m.Set(field, protoreflect.ValueOfInt32(int32(n)))
		}
	}
	return nil
}

func parseWeight(text string) (float64, error) {
	if text == None {
		return math.Inf(1), nil
	}
	w, err := strconv.ParseFloat(text, 64)
	if err != nil || !(w > 0) || math.IsInf(w, 0) {
		return 0, fmt.Errorf("%q: want a number above 0, or %s", text, None)
	}
	return w, nil
}

// ParseOver returns base with the limits in texts, by name, as in a limits file. The error names the first limit that
// is invalid or unknown.
func ParseOver(base Tenant, texts map[string]string) (Tenant, error) {
	known := map[string]bool{MaxWeight: true}
	for _, f := range Fields() {
		known[f.Name] = true
		text, given := texts[f.Name]
		if !given {
			continue
		}
		value, err := f.Parse(text)
		if err != nil {
			return base, fmt.Errorf("%s: %w", f.Name, err)
		}
		*f.At(&base) = value
	}
	if text, given := texts[MaxWeight]; given {
		w, err := parseWeight(text)
		if err != nil {
			return base, fmt.Errorf("%s: %w", MaxWeight, err)
		}
		base.MaxWeight = w
	}
	for name := range texts {
		if !known[name] {
			return base, fmt.Errorf("%s: is not a limit; want one of %s", name, Names())
		}
	}
	return base, nil
}

// Names returns the names of all limits.
func Names() string {
	list := ""
	for _, f := range Fields() {
		list += f.Name + ", "
	}
	return list + MaxWeight
}
