package api

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const someLimits = `
default: {log_bytes: 64MiB}
tenants:
  vision: {max_weight: 4, blob_bytes: 1GiB}
`

func loadLimits(t *testing.T, text string) (*Limits, string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := LoadLimits(path)
	return l, path, err
}

func withLimits(logs, blobs int64, weight float64) limits.Tenant {
	t := limits.Default()
	t.LogBytes, t.BlobBytes, t.MaxWeight = logs, blobs, weight
	return t
}

func TestLimitsAreThoseOfTheTenant(t *testing.T) {
	t.Parallel()
	l, path, err := loadLimits(t, someLimits)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := l.Of("vision"), withLimits(64<<20, 1<<30, 4); got != want {
		t.Errorf("vision: %+v, want %+v", got, want)
	}
	if got, want := l.Of("speech"), withLimits(64<<20, 4<<30, 1); got != want {
		t.Errorf("speech: %+v, want %+v", got, want)
	}
	if got := (*Limits)(nil).Of("vision"); got != limits.Default() {
		t.Errorf("without a file: %+v", got)
	}
	write := func(text string) (bool, error) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return l.Reload()
	}
	if changed, err := write(someLimits + "\n# the same\n"); changed || err != nil {
		t.Errorf("the same limits: %v, %v", changed, err)
	}
	if changed, err := write("default: {max_weight: heavy}"); changed || err == nil || l.Of("vision").MaxWeight != 4 {
		t.Errorf("damaged limits: %v, %v, %+v", changed, err, l.Of("vision"))
	}
	if changed, err := write("default: {max_weight: 2}"); !changed || err != nil || l.Of("vision").MaxWeight != 2 {
		t.Errorf("other limits: %v, %v, %+v", changed, err, l.Of("vision"))
	}
}

func TestWrongLimitsAreNamed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"tenants: {vision: {weight: 3}}":         "tenants.vision.weight: is not a limit; want one of sweeps,",
		"default: {log_bytes: many}":             `default.log_bytes: "many" is not an amount`,
		"default: {log_bytes: 3kB}":              "want 1MiB or more",
		"tenants: {vision: {max_weight: 0}}":     `tenants.vision.max_weight: "0": want a number above 0`,
		"tenants: {vision: {max_weight: .inf}}":  "want a number above 0",
		"tenants: {Vision: {max_weight: 1}}":     `"Vision" cannot be a tenant`,
		"tenants: {vision: {blob_bytes: -1GiB}}": "tenants.vision.blob_bytes",
		"- a list":                               "cannot unmarshal",
	} {
		if _, _, err := loadLimits(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := LoadLimits(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there")
	}
}

func TestAWeightIsCappedByTenant(t *testing.T) {
	t.Parallel()
	limits, _, err := loadLimits(t, someLimits)
	if err != nil {
		t.Fatal(err)
	}
	h := serve(t, func(c *Config) { c.Tokens, c.Limits = testTokens(t), limits })
	for _, tc := range []struct {
		who    string
		weight float64
		want   codes.Code
	}{
		{"ann", 4, codes.OK},
		{"ann", 4.1, codes.InvalidArgument},
		{"bob", 1, codes.OK},
		{"bob", 0, codes.OK},
		{"bob", 1e6, codes.InvalidArgument},
		{"root", 1e6, codes.OK},
	} {
		own := okSpec()
		own.Weight = tc.weight
		_, err := h.dial(t, token(tc.who)).SubmitSweep(t.Context(), &outbidv1.SubmitSweepRequest{Spec: own})
		if status.Code(err) != tc.want {
			t.Errorf("weight %v of %s: %v, want %s", tc.weight, tc.who, err, tc.want)
		}
		if tc.want != codes.OK && !strings.Contains(err.Error(), "is more than the") {
			t.Errorf("the error is %v", err)
		}
		_, err = h.dial(t, token(tc.who)).PreviewSweep(t.Context(), &outbidv1.PreviewSweepRequest{Spec: own})
		if status.Code(err) != tc.want {
			t.Errorf("a preview of weight %v of %s: %v, want %s", tc.weight, tc.who, err, tc.want)
		}
	}
}

func TestANewWeightIsCappedByTenant(t *testing.T) {
	t.Parallel()
	limits, _, err := loadLimits(t, someLimits)
	if err != nil {
		t.Fatal(err)
	}
	h := serve(t, func(c *Config) { c.Tokens, c.Limits = testTokens(t), limits })
	h.control.add("digits-1", "vision", 1)
	h.control.add("granted-1", "vision", 1)
	h.control.sweeps["granted-1"].view.Spec.Weight = 9
	for _, tc := range []struct {
		who, sweep string
		weight     float64
		want       codes.Code
	}{
		{"ann", "digits-1", 4, codes.OK},
		{"ann", "digits-1", 4.1, codes.InvalidArgument},
		{"ann", "granted-1", 8, codes.OK}, // an admin granted more, and users may lower it
		{"ann", "granted-1", 9.5, codes.InvalidArgument},
		{"root", "digits-1", 1e6, codes.OK},
		{"bob", "digits-1", 1, codes.NotFound},
	} {
		_, err := h.dial(t, token(tc.who)).ExtendSweep(t.Context(), &outbidv1.ExtendSweepRequest{Sweep: tc.sweep, Weight: &tc.weight})
		if status.Code(err) != tc.want {
			t.Errorf("weight %v for %s by %s: %v, want %s", tc.weight, tc.sweep, tc.who, err, tc.want)
		}
	}
}
