package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/usage"
)

// fakeUsage has an hour of each of two tenants' devices.
type fakeUsage struct{ asked usage.Query }

func (f *fakeUsage) Sum(_ context.Context, q usage.Query) (*usage.Table, error) {
	f.asked = q
	t := &usage.Table{Since: q.Since, Until: time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)}
	for _, tenant := range []string{"vision", "speech"} {
		if q.Sees(tenant) {
			price, known := q.Prices.Of("h100")
			t.Rows = append(t.Rows, &usage.Row{Values: []string{tenant}, Seconds: 3600, Cost: price, Unpriced: !known})
			t.Total.Seconds += 3600
		}
	}
	return t, nil
}

func TestUsageOverREST(t *testing.T) {
	t.Parallel()
	book := &fakeUsage{}
	h := serve(t, func(c *Config) { c.Tokens, c.Usage = testTokens(t), book })
	for name, c := range map[string]struct {
		token, query string
		code         int
		want         string
	}{
		"a user sees one tenant": {"ann", "?by=tenant", http.StatusOK, `"rows":[{"values":["vision"],"device_seconds":3600}],"total"`},
		"an admin sees all":      {"root", "?by=tenant&prices[h100]=2", http.StatusOK, `{"values":["speech"],"device_seconds":3600,"cost":2}]`},
		"a period":               {"root", "?since=2026-11-01T00:00:00Z&until=2026-11-02T00:00:00Z", http.StatusOK, `"since":"2026-11-01T00:00:00Z"`},
		"an unknown column":      {"root", "?by=node", http.StatusBadRequest, `\"node\": must be tenant, user, type or label.NAME`},
		"too many columns":       {"root", "?" + strings.Repeat("by=label.x&", 9), http.StatusBadRequest, "at most 8 are allowed"},
		"an empty period":        {"root", "?since=2026-11-02T00:00:00Z&until=2026-11-02T00:00:00Z", http.StatusBadRequest, "must be later than since"},
		"a time before 1970":     {"root", "?since=1969-11-02T00:00:00Z", http.StatusBadRequest, "must be a time after 1970"},
		"a negative price":       {"root", "?prices[h100]=-1", http.StatusBadRequest, "device_hour.h100: must be a finite number"},
		"no role":                {"prom", "?by=tenant", http.StatusForbidden, "GetUsage needs the role admin, operator, auditor"},
	} {
		resp, body := h.call(t, "GET", "/v1/usage"+c.query, "", "Authorization", "Bearer "+token(c.token))
		var compact bytes.Buffer
		if err := json.Compact(&compact, body); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != c.code || !strings.Contains(compact.String(), c.want) {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
}
