package api

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// fakeRetention has an expired sweep in each of two tenants.
type fakeRetention struct{ actors []string }

func (f *fakeRetention) Plan(sees func(string) bool) (expired, kept []*outbidv1.Expired) {
	for _, tenant := range []string{"vision", "speech"} {
		if sees(tenant) {
			expired = append(expired, &outbidv1.Expired{Tenant: tenant, Sweep: tenant + "-1"})
		}
	}
	return expired, nil
}

func (f *fakeRetention) Delete(_ context.Context, expired []*outbidv1.Expired, actor string) []*outbidv1.Expired {
	f.actors = append(f.actors, actor)
	return expired
}

func TestRetentionIsOfTheOwnTenant(t *testing.T) {
	t.Parallel()
	r := &fakeRetention{}
	h := serve(t, func(c *Config) { c.Tokens, c.Retention = testTokens(t), r })
	for _, tc := range []struct {
		who, tenant string
		want        codes.Code
		n           int
	}{
		{"root", "", codes.OK, 2},
		{"root", "speech", codes.OK, 1},
		{"tess", "", codes.OK, 1},
		{"tess", "vision", codes.OK, 1},
		{"tess", "speech", codes.NotFound, 0},
		{"ann", "", codes.PermissionDenied, 0},
		{"audi", "", codes.PermissionDenied, 0},
	} {
		got, err := dialAs(t, h, tc.who).RunRetention(t.Context(), &outbidv1.RunRetentionRequest{Tenant: tc.tenant, DryRun: true})
		if status.Code(err) != tc.want || len(got.GetExpired()) != tc.n {
			t.Errorf("%s of %q: %v, %v", tc.who, tc.tenant, got, err)
		}
	}
	if len(r.actors) > 0 {
		t.Fatalf("dry runs deleted: %v", r.actors)
	}
	if _, err := dialAs(t, h, "tess").RunRetention(t.Context(), &outbidv1.RunRetentionRequest{}); err != nil || len(r.actors) != 1 || r.actors[0] != "tess" {
		t.Errorf("%v, by %v", err, r.actors)
	}
}
