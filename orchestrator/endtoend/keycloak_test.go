package endtoend

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/oidc/oidctest"
)

// keycloakStart is how long Keycloak may take to create its database.
const keycloakStart = 5 * time.Minute

// keycloak is a running Keycloak and a token of its administrator.
type keycloak struct {
	*testing.T
	base, token string
	*proc
}

// TestSignInKeycloak runs with OUTBID_KEYCLOAK, the folder of an unpacked Keycloak.
func TestSignInKeycloak(t *testing.T) {
	t.Parallel()
	home := os.Getenv("OUTBID_KEYCLOAK")
	if home == "" {
		t.Skip("OUTBID_KEYCLOAK is not set; make test-sign-in sets it")
	}
	port := freePort(t)
	k := &keycloak{T: t, base: "http://127.0.0.1:" + port}
	k.proc = newProc(t, t.TempDir(), filepath.Join(home, "bin", "kc.sh"), "start-dev", "--db", "dev-mem", "--http-host", "127.0.0.1",
		"--http-port", port, "--http-management-port", freePort(t))
	k.cmd.Env = append(os.Environ(), "KC_BOOTSTRAP_ADMIN_USERNAME=admin", "KC_BOOTSTRAP_ADMIN_PASSWORD=x")
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	k.watch([]string{"keycloak"})
	k.ready()
	k.makeRealm()
	testSignIn(t, idp{
		issuer: k.base + "/realms/outbid", stop: k.pause,
		rotate: func() {
			k.resume()
			k.logIn()
			k.post("/admin/realms/outbid/components", map[string]any{
				"name": "new", "providerId": "rsa-generated", "providerType": "org.keycloak.keys.KeyProvider",
				"config": map[string][]string{"priority": {"200"}},
			})
		},
	})
}

// ready waits until Keycloak answers.
func (k *keycloak) ready() {
	k.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(keycloakStart)
	for {
		resp, err := http.Get(k.base + "/realms/master")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
		case <-k.ended:
			k.Fatal("Keycloak ended")
		case <-deadline:
			k.Fatalf("Keycloak did not start within %s", keycloakStart)
		}
	}
}

// logIn gets a token of the administrator.
func (k *keycloak) logIn() {
	k.Helper()
	resp, err := http.PostForm(k.base+"/realms/master/protocol/openid-connect/token", url.Values{
		"grant_type": {"password"}, "client_id": {"admin-cli"}, "username": {"admin"}, "password": {"x"},
	})
	if err != nil {
		k.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Token string `json:"access_token"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Token == "" {
		k.Fatalf("the administrator cannot log in: %s, %v", resp.Status, err)
	}
	k.token = answer.Token
}

// makeRealm creates the realm, the client, the group and the people.
func (k *keycloak) makeRealm() {
	k.Helper()
	k.logIn()
	k.post("/admin/realms", map[string]any{
		"realm": "outbid", "enabled": true, "groups": []any{map[string]any{"name": "vision"}},
		"clients": []any{map[string]any{
			"clientId": oidctest.ClientID, "publicClient": true, "standardFlowEnabled": true,
			"redirectUris": []string{"http://127.0.0.1/*"},
			"attributes":   map[string]any{"oauth2.device.authorization.grant.enabled": "true", "pkce.code.challenge.method": "S256"},
			"protocolMappers": []any{map[string]any{
				"name": "groups", "protocol": "openid-connect", "protocolMapper": "oidc-group-membership-mapper",
				"config": map[string]any{"claim.name": "groups", "full.path": "false", "id.token.claim": "true"},
			}},
		}},
	})
	// People who are imported with a realm lack its default roles, without which Keycloak refuses offline_access.
	for name, groups := range map[string][]string{"ann": {"vision"}, "eve": {}} {
		k.post("/admin/realms/outbid/users", map[string]any{
			"username": name, "enabled": true, "email": name + "@example.org", "emailVerified": true, "firstName": "A", "lastName": "N",
			"groups": groups, "credentials": []any{map[string]any{"type": "password", "value": "x", "temporary": false}},
		})
	}
}

func (k *keycloak) post(path string, body any) {
	k.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		k.Fatal(err)
	}
	r, err := http.NewRequestWithContext(k.Context(), http.MethodPost, k.base+path, bytes.NewReader(data))
	if err != nil {
		k.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+k.token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		k.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusCreated {
		k.Fatalf("%s: %s %s", path, resp.Status, text)
	}
}
