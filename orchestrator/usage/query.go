package usage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Query selects the device time to sum up.
type Query struct {
	// Since and Until limit the period. A zero Since is the start of the ledger, and a zero Until is now.
	Since, Until time.Time
	// By lists the columns: tenant, user, type or label.NAME.
	By []string
	// Prices are used for the cost.
	Prices Prices
	// Sees reports whether the caller may see a tenant.
	Sees func(tenant string) bool
}

// Table is the answer to a Query.
type Table struct {
	Since, Until time.Time
	// Rows are sorted by their values. Total is their sum.
	Rows  []*Row
	Total Row
}

// Row is the device time of the leases with equal values in the columns of the query.
type Row struct {
	Values []string
	// Seconds and Nanos are the device time. Two numbers do not overflow.
	Seconds, Nanos int64
	// Cost is the price of that time. It is incomplete if the price of a device type is Unpriced.
	Cost     float64
	Unpriced bool
}

// DeviceSeconds returns the device time in seconds.
func (r *Row) DeviceSeconds() float64 { return float64(r.Seconds) + float64(r.Nanos)/1e9 }

// add adds the time of devices.
func (r *Row) add(nanos int64, devices int32) {
	r.Seconds += nanos / 1e9 * int64(devices)
	r.Nanos += nanos % 1e9 * int64(devices)
	r.Seconds, r.Nanos = r.Seconds+r.Nanos/1e9, r.Nanos%1e9
}

// maxRows limits an answer. Users choose the labels, so there may be any number of values.
const maxRows = 10_000

// TooManyRowsError means that an answer would have too many rows.
type TooManyRowsError struct{}

// Error implements error.
func (TooManyRowsError) Error() string {
	return fmt.Sprintf("by: more than %d rows; choose a shorter period or fewer columns", maxRows)
}

// CheckColumns returns an error that names the first invalid column.
func CheckColumns(by []string) error {
	for i, c := range by {
		name, label := strings.CutPrefix(c, "label.")
		switch {
		case label && name == "", !label && c != "tenant" && c != "user" && c != "type":
			return fmt.Errorf("%q: must be tenant, user, type or label.NAME", c)
		case slices.Contains(by[:i], c):
			return fmt.Errorf("%q: must be given only once", c)
		}
	}
	return nil
}

// sum adds up the spans that a query selects.
func (x *index) sum(q Query) (*Table, error) {
	var since int64
	if !q.Since.IsZero() {
		since = q.Since.UnixNano()
	}
	parts := map[part]*Row{}
	x.between(since, q.Until.UnixNano(), func(s span) {
		at := part{s.Owner, s.Type}
		if parts[at] == nil {
			parts[at] = &Row{}
		}
		parts[at].add(s.To-s.From, s.Devices)
	})
	t, rows := &Table{Since: q.Since, Until: q.Until}, map[string]*Row{}
	for _, at := range slices.SortedFunc(maps.Keys(parts), part.compare) { // sorted, because sums of costs depend on the order
		if !q.Sees(x.Owners[at.owner].Tenant) {
			continue
		}
		r := parts[at]
		r.price(q.Prices, x.Types[at.kind])
		values := x.values(at, q.By)
		key := strings.Join(values, "\x00")
		if rows[key] == nil {
			rows[key] = &Row{Values: values}
			t.Rows = append(t.Rows, rows[key])
		}
		rows[key].include(r)
		t.Total.include(r)
	}
	if len(t.Rows) > maxRows {
		return nil, TooManyRowsError{}
	}
	slices.SortFunc(t.Rows, func(a, b *Row) int { return slices.Compare(a.Values, b.Values) })
	return t, nil
}

// part is a pair of an owner and a device type.
type part struct{ owner, kind int32 }

func (p part) compare(o part) int {
	return cmp.Or(cmp.Compare(p.owner, o.owner), cmp.Compare(p.kind, o.kind))
}

// values returns the values of the columns for an owner and a device type.
func (x *index) values(at part, by []string) []string {
	o, all := x.Owners[at.owner], make([]string, len(by))
	for i, c := range by {
		switch c {
		case "tenant":
			all[i] = o.Tenant
		case "user":
			all[i] = o.User
		case "type":
			all[i] = x.Types[at.kind]
		default:
			all[i] = o.Labels[strings.TrimPrefix(c, "label.")]
		}
	}
	return all
}

// price computes the cost of a row with one device type.
func (r *Row) price(prices Prices, kind string) {
	hour, known := prices.Of(kind)
	r.Cost, r.Unpriced = hour*r.DeviceSeconds()/3600, !known
}

// include adds another row.
func (r *Row) include(o *Row) {
	r.add(o.Nanos, 1)
	r.Seconds += o.Seconds
	r.Cost, r.Unpriced = r.Cost+o.Cost, r.Unpriced || o.Unpriced
}
