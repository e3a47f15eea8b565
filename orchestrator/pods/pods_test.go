package pods

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/outbid-dev/outbid/orchestrator/oidc"
	"github.com/outbid-dev/outbid/orchestrator/pods/podstest"
)

func admission(t *testing.T, i *podstest.Issuer) *Admission {
	t.Helper()
	keys, err := oidc.StaticKeys(i.PEM(t))
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(Config{Issuer: podstest.URL, Audience: "outbid", Keys: keys, Accounts: []string{"team/worker"}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestCheck(t *testing.T) {
	t.Parallel()
	issuer := podstest.New(t)
	a := admission(t, issuer)
	now := time.Now().Truncate(time.Second)
	pod, err := a.Check(t.Context(), issuer.Token(t, "w-0", "u-1", "node.example.org", now, nil))
	want := Pod{Namespace: "team", Name: "w-0", UID: "u-1", Account: "worker", Node: "node.example.org", Issued: now.UTC()}
	if err != nil || pod != want {
		t.Fatalf("%+v, %v; want %+v", pod, err, want)
	}
	k8s := func(namespace, account string, pod any) map[string]any {
		return map[string]any{"kubernetes.io": map[string]any{
			"namespace": namespace, "serviceaccount": map[string]any{"name": account}, "pod": pod,
		}}
	}
	bound := map[string]any{"name": "w-0", "uid": "u-1"}
	for name, c := range map[string]struct {
		changes map[string]any
		issued  time.Time
		want    string
	}{
		"another audience":        {map[string]any{"aud": []string{"https://kubernetes.default.svc"}}, now, `expected audience "outbid"`},
		"another issuer":          {map[string]any{"iss": "https://other.example.org"}, now, "issued by a different provider"},
		"expired":                 {nil, now.Add(-2 * time.Hour), "expired at"},
		"another ServiceAccount":  {map[string]any{"sub": "system:serviceaccount:team:other"}, now, `subject is "system:serviceaccount:team:other"`},
		"one that may not join":   {with(k8s("team", "other", bound), "sub", "system:serviceaccount:team:other"), now, "ServiceAccount team/other: must be one of team/worker"},
		"one of other namespaces": {with(k8s("evil", "worker", bound), "sub", "system:serviceaccount:evil:worker"), now, "ServiceAccount evil/worker"},
		"not bound to a pod":      {k8s("team", "worker", nil), now, "not bound to a pod"},
		"not of Kubernetes":       {map[string]any{"kubernetes.io": nil}, now, "not of a Kubernetes ServiceAccount"},
		"without a time":          {map[string]any{"iat": nil}, now, "does not say when it was issued"},
	} {
		_, err := a.Check(t.Context(), issuer.Token(t, "w-0", "u-1", "node-1", c.issued, c.changes))
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := a.Check(t.Context(), podstest.New(t).Token(t, "w-0", "u-1", "node-1", now, nil)); !errors.Is(err, ErrRefused) {
		t.Errorf("a token of another key: %v", err)
	}
}

func with(m map[string]any, name string, value any) map[string]any {
	m[name] = value
	return m
}

func TestChooseName(t *testing.T) {
	t.Parallel()
	p := Pod{Name: "w.0", Node: "ip-10.example.org"}
	for asked, want := range map[string]string{"": "w-0", "w-0": "w-0", "ip-10-example-org": "ip-10-example-org", "gpu-7": "", "w.0": ""} {
		got, err := p.ChooseName(asked)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", asked, got, err)
		}
	}
	if _, err := (Pod{Name: "w-0"}).ChooseName("node-1"); err == nil {
		t.Error("a node's name without a node in the token is accepted")
	}
}

func TestMayReplace(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	holder := Pod{Namespace: "team", Name: "w-0", UID: "u-1", Account: "worker", Issued: at}
	change := func(f func(*Pod)) Pod {
		p := holder
		p.Issued = at.Add(time.Minute)
		f(&p)
		return p
	}
	for name, c := range map[string]struct {
		pod   Pod
		alive bool
		want  error
	}{
		"itself":                       {holder, true, nil},
		"itself, with a newer token":   {change(func(*Pod) {}), true, nil},
		"its successor":                {change(func(p *Pod) { p.UID = "u-2" }), true, nil},
		"its predecessor":              {change(func(p *Pod) { p.UID, p.Issued = "u-0", at.Add(-time.Second) }), false, ErrRefused},
		"another pod":                  {change(func(p *Pod) { p.UID, p.Name = "u-2", "w-1" }), true, ErrTaken},
		"another pod, after its end":   {change(func(p *Pod) { p.UID, p.Name = "u-2", "w-1" }), false, nil},
		"the same name, another space": {change(func(p *Pod) { p.UID, p.Namespace = "u-2", "other" }), false, ErrTaken},
		"a pod of another account":     {change(func(p *Pod) { p.UID, p.Name, p.Account = "u-2", "w-1", "other" }), false, ErrTaken},
	} {
		if err := c.pod.MayReplace(holder, "w-0", c.alive); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// The keys come from a file, from a URL, or from the API server of this pod's cluster, which wants the pod's own token.
func TestOpen(t *testing.T) {
	t.Parallel()
	issuer := podstest.New(t)
	block, _ := pem.Decode(issuer.PEM(t))
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Value
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Header.Get("Authorization"))
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key, KeyID: "k", Algorithm: "RS256", Use: "sig"}}})
	}))
	defer api.Close()
	own := t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	ownToken := issuer.Token(t, "serve-0", "u-9", "node-1", time.Now(), nil)
	for name, data := range map[string][]byte{"ca.crt": ca, "token": []byte(ownToken), "keys.pem": issuer.PEM(t)} {
		if err := os.WriteFile(filepath.Join(own, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	inPod := func(name string) string {
		return map[string]string{"KUBERNETES_SERVICE_HOST": at.Hostname(), "KUBERNETES_SERVICE_PORT": at.Port()}[name]
	}
	outside := func(string) string { return "" }
	accounts := []string{"team/worker"}
	for name, c := range map[string]struct {
		source Source
		own    string
		getenv func(string) string
		asks   string
		err    string
	}{
		"in a pod":                  {Source{Accounts: accounts}, own, inPod, "Bearer " + ownToken, ""},
		"a URL":                     {Source{Issuer: podstest.URL, Keys: api.URL, CAFile: filepath.Join(own, "ca.crt"), Accounts: accounts}, "", outside, "", ""},
		"a file":                    {Source{Issuer: podstest.URL, Keys: filepath.Join(own, "keys.pem"), Accounts: accounts}, "", outside, "", ""},
		"no file":                   {Source{Issuer: podstest.URL, Keys: filepath.Join(own, "none"), Accounts: accounts}, "", outside, "", "no such file"},
		"not in a pod, no issuer":   {Source{Accounts: accounts}, filepath.Join(own, "none"), outside, "", "issuer: must be"},
		"not in a pod, no keys":     {Source{Issuer: podstest.URL, Accounts: accounts}, own, outside, "", "must be a file or URL"},
		"no account":                {Source{}, own, inPod, "", "no pod may join: want NAMESPACE/NAME"},
		"bad account":               {Source{Accounts: []string{"worker"}}, own, inPod, "", "want NAMESPACE/NAME"},
		"bad account, not in a pod": {Source{Accounts: []string{"worker"}}, filepath.Join(own, "none"), outside, "", `"worker": want NAMESPACE/NAME`},
	} {
		asked.Store("")
		a, err := open(c.source, c.own, c.getenv)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", name, err, c.err)
			}
			if wrong := strings.HasSuffix(name, "account") || strings.Contains(name, "account,"); errors.Is(err, ErrAccounts) != wrong {
				t.Errorf("%s: whether the list of accounts is wrong: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := a.Check(t.Context(), issuer.Token(t, "w-0", "u-1", "node-1", time.Now(), nil)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := asked.Load(); got != c.asks {
			t.Errorf("%s: the keys were asked for with %q, want %q", name, got, c.asks)
		}
	}
	api.Close()
	a, err := open(Source{Accounts: accounts}, own, inPod)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Check(t.Context(), issuer.Token(t, "w-0", "u-1", "node-1", time.Now(), nil)); !errors.Is(err, oidc.ErrUnavailable) {
		t.Errorf("the API server is away: %v", err)
	}
}
