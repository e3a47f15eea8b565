package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/pods/podstest"
)

func TestMistakesInAPodsJoin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token, other := filepath.Join(dir, "token"), filepath.Join(dir, "other")
	for file, text := range map[string]string{token: podstest.New(t).Token(t, "w-0", "u-1", "n-1", time.Now(), nil), other: "outbid_join_x"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for want, args := range map[string][]string{
		"none: no such file":                           {"worker", "join", "--service-account-token", filepath.Join(dir, "none")},
		"want a file with a ServiceAccount token":      {"worker", "join", "--service-account-token", other},
		"--join-token and --service-account-token":     {"worker", "join", "--service-account-token", token, "--join-token", other},
		"cannot be combined with --credentials":        {"worker", "--service-account-token", token, "--credentials", dir},
		`--service-accounts: "worker": want NAMESPACE`: {"serve", "--data", filepath.Join(dir, "a"), "--service-accounts", "worker"},
		"--service-accounts: missing":                  {"serve", "--data", filepath.Join(dir, "b"), "--service-account-issuer", "https://x.example.org"},
		"the tokens of ServiceAccounts cannot be checked": {
			"serve", "--data", filepath.Join(dir, "c"), "--service-accounts", "a/b", "--service-account-issuer", "https://x.example.org", "--service-account-jwks", filepath.Join(dir, "none"),
		},
	} {
		app := newTestApp(strings.NewReader(""), nil)
		if code := app.run(t.Context(), args); code != 2 || !strings.Contains(app.err.String(), want) {
			t.Errorf("%v: exit code %d, want %q in %s", args, code, want, app.err.String())
		}
	}
}
