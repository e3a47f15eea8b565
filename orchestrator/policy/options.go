package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Options are a policy's settings as name=value pairs from the command line. A constructor reads each of its options
// with a default and then calls Err, which reports the first value that is invalid or belongs to an unknown option.
type Options struct {
	values map[string]string
	known  []Option
	err    error
}

// Option describes an option for help texts.
type Option struct {
	Name, Default, Help string
}

// NewOptions returns options with these values.
func NewOptions(values map[string]string) *Options { return &Options{values: values} }

// ParseOptions parses "name=value" pairs.
func ParseOptions(pairs []string) (*Options, error) {
	values := map[string]string{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("policy option %q: want name=value", pair)
		}
		if _, twice := values[name]; twice {
			return nil, fmt.Errorf("policy option %q is given twice", name)
		}
		values[name] = value
	}
	return NewOptions(values), nil
}

// Given returns the values that were given, by name.
func (o *Options) Given() map[string]string { return maps.Clone(o.values) }

// lookup registers an option and returns its given text. A text that equals the default counts as not given, even if
// the default is outside the option's bounds, so that the result of Resolved can be given again.
func (o *Options) lookup(name, def, help string) (string, bool) {
	o.known = append(o.known, Option{name, def, help})
	value, ok := o.values[name]
	return value, ok && value != def
}

func (o *Options) fail(name, value, want string) {
	if o.err == nil {
		o.err = fmt.Errorf("policy option %s=%s: want %s", name, value, want)
	}
}

// Duration reads an option such as "6m", which must be above 0.
func (o *Options) Duration(name string, def time.Duration, help string) time.Duration {
	value, ok := o.lookup(name, def.String(), help)
	if !ok {
		return def
	}
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		o.fail(name, value, "a duration above 0 such as 90s or 10m")
		return def
	}
	return d
}

// Float reads a number from least to most, inclusive.
func (o *Options) Float(name string, def, least, most float64, help string) float64 {
	value, ok := o.lookup(name, strconv.FormatFloat(def, 'g', -1, 64), help)
	if !ok {
		return def
	}
	f, err := strconv.ParseFloat(value, 64)
	if err != nil || !(f >= least && f <= most) {
		o.fail(name, value, fmt.Sprintf("a number from %g to %g", least, most))
		return def
	}
	return f
}

// Int reads a whole number from least to most, inclusive.
func (o *Options) Int(name string, def, least, most int, help string) int {
	value, ok := o.lookup(name, strconv.Itoa(def), help)
	if !ok {
		return def
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > most {
		o.fail(name, value, fmt.Sprintf("a whole number from %d to %d", least, most))
		return def
	}
	return n
}

// Seed reads a whole number of at least 0.
func (o *Options) Seed(name string, def uint64, help string) uint64 {
	value, ok := o.lookup(name, strconv.FormatUint(def, 10), help)
	if !ok {
		return def
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		o.fail(name, value, "a whole number from 0 on")
		return def
	}
	return n
}

// Bool reads true or false.
func (o *Options) Bool(name string, def bool, help string) bool {
	value, ok := o.lookup(name, strconv.FormatBool(def), help)
	if !ok {
		return def
	}
	b, err := strconv.ParseBool(value)
	if err != nil {
		o.fail(name, value, "true or false")
		return def
	}
	return b
}

// Text reads a text, which must be one of choices if there are any.
func (o *Options) Text(name, def, help string, choices ...string) string {
	value, ok := o.lookup(name, def, help)
	if !ok {
		return def
	}
	if len(choices) > 0 && !slices.Contains(choices, value) {
		o.fail(name, value, "one of "+strings.Join(choices, ", "))
		return def
	}
	return value
}

// Ascending reads a list such as "3600,36000": numbers above 0, each larger than the one before.
func (o *Options) Ascending(name, def, help string) []float64 {
	text, ok := o.lookup(name, def, help)
	if !ok {
		text = def
	}
	var list []float64
	for part := range strings.SplitSeq(text, ",") {
		x, err := strconv.ParseFloat(part, 64)
		if err != nil || !(x > 0 && x < 1e18) || len(list) > 0 && x <= list[len(list)-1] {
			o.fail(name, text, "ascending numbers above 0 such as 3600 or 3600,36000")
			return nil
		}
		list = append(list, x)
	}
	return list
}

// Known lists the options that have been read, in order.
func (o *Options) Known() []Option { return o.known }

// Resolved returns the given or default text of each option that has been read. A policy made from the result behaves
// the same even if the defaults change later.
func (o *Options) Resolved() map[string]string {
	all := make(map[string]string, len(o.known))
	for _, k := range o.known {
		all[k.Name] = k.Default
		if value, given := o.values[k.Name]; given {
			all[k.Name] = value
		}
	}
	return all
}

// Err returns an error for the first value that is invalid or belongs to an unknown option.
func (o *Options) Err() error {
	if o.err != nil {
		return o.err
	}
	var names []string
	for _, k := range o.known {
		names = append(names, k.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(o.values)) {
		if slices.Contains(names, name) {
			continue
		}
		if len(names) == 0 {
			return fmt.Errorf("policy option %s=%s: this policy has no options", name, o.values[name])
		}
		return fmt.Errorf("policy option %s=%s: this policy has %s", name, o.values[name], strings.Join(names, ", "))
	}
	return nil
}
