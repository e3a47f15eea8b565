package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func apiToken(name string, life time.Duration) *outbidv1.APIToken {
	return &outbidv1.APIToken{
		Name: name, Tenant: "vision", Role: "user", Created: ago(time.Hour), CreatedBy: "ann", Expires: timestamppb.New(noon().Add(life)),
	}
}

// CreateToken implements the service.
func (f *fakeService) CreateToken(_ context.Context, req *outbidv1.CreateTokenRequest) (*outbidv1.CreateTokenResponse, error) {
	f.note(req)
	return &outbidv1.CreateTokenResponse{Token: "outbid_new", Info: apiToken(req.GetName(), req.GetLife().AsDuration())}, nil
}

// ListTokens implements the service.
func (f *fakeService) ListTokens(_ context.Context, req *outbidv1.ListTokensRequest) (*outbidv1.ListTokensResponse, error) {
	f.note(req)
	used := apiToken("ci", time.Hour)
	used.LastUsed, used.Scopes = ago(time.Minute), []string{"read", "content"}
	return &outbidv1.ListTokensResponse{Tokens: []*outbidv1.APIToken{used, apiToken("old", -time.Hour)}}, nil
}

// RotateToken implements the service.
func (f *fakeService) RotateToken(_ context.Context, req *outbidv1.RotateTokenRequest) (*outbidv1.RotateTokenResponse, error) {
	f.note(req)
	return &outbidv1.RotateTokenResponse{Token: "outbid_next", Info: apiToken(req.GetName(), req.GetLife().AsDuration())}, nil
}

// RevokeToken implements the service.
func (f *fakeService) RevokeToken(_ context.Context, req *outbidv1.RevokeTokenRequest) (*outbidv1.RevokeTokenResponse, error) {
	f.note(req)
	if req.GetName() != "ci" {
		return nil, status.Errorf(codes.NotFound, "there is no such token: %s of tenant vision", req.GetName())
	}
	return &outbidv1.RevokeTokenResponse{}, nil
}

// TestTokenCommandsSendTheirFlags checks the requests.
func TestTokenCommandsSendTheirFlags(t *testing.T) {
	t.Parallel()
	service := &fakeService{}
	url, _ := serveFake(t, service, "127.0.0.1:0")
	for _, line := range []string{
		"token create ci --tenant vision --role viewer --expires 30d --scope read,content",
		"token rotate ci --expires 12h --overlap 1h",
	} {
		app := newTestApp(strings.NewReader(""), map[string]string{"OUTBID_URL": url})
		if code := app.run(t.Context(), strings.Fields(line)); code != 0 || !strings.HasPrefix(app.out.String(), "outbid_") || strings.Count(app.out.String(), "\n") != 1 {
			t.Errorf("%s: exit %d, %s%s", line, code, app.out, app.err)
		}
	}
	made, ok := service.asked[0].(*outbidv1.CreateTokenRequest)
	if !ok || made.GetTenant() != "vision" || made.GetRole() != "viewer" || strings.Join(made.GetScopes(), " ") != "read content" ||
		made.GetLife().AsDuration() != 30*24*time.Hour {
		t.Errorf("%v", service.asked[0])
	}
	rotated, ok := service.asked[1].(*outbidv1.RotateTokenRequest)
	if !ok || rotated.GetLife().AsDuration() != 12*time.Hour || rotated.GetOverlap().AsDuration() != time.Hour {
		t.Errorf("%v", service.asked[1])
	}
}
