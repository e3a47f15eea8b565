package endtoend

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// operatorSecrets are secrets, by description, that must not be in logs, answers or metrics.
type operatorSecrets map[string]string

// hasNone fails the test if text contains one of them.
func (o operatorSecrets) hasNone(t *testing.T, where, text string) {
	t.Helper()
	for what, secret := range o {
		if secret == "" {
			t.Fatalf("%s is empty", what)
		}
		if strings.Contains(text, secret) {
			t.Errorf("%s contains %s", where, what)
		}
	}
}

// seeds adds the private keys in a directory, by file.
func (o operatorSecrets) seeds(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no keys in %s: %v", dir, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // a directory
		}
		if seed := regexp.MustCompile(`\bS[AOU][A-Z2-7]{56}\b`).Find(data); seed != nil {
			o["the seed of "+filepath.Base(file)] = string(seed)
		}
	}
}

func get(t *testing.T, url, token string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s, %v", url, resp.Status, err)
	}
	return string(text)
}

// TestNoSecretOfAnOperatorIsFoundInLogsOrAnswers checks that tokens, keys, store passwords and URL signatures are
// neither in logs at any level nor in answers.
func TestNoSecretOfAnOperatorIsFoundInLogsOrAnswers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secrets := operatorSecrets{"the store's password": "minio-password-5f1e", "AWS's key": "aws-secret-key-77aa", "a signed URL": "signature="}
	secrets["the admin's token"] = firstLine(mustTool(t, dir, "token", "new", "--file", "tokens", "--name", "root", "--tenant", "*", "--role", "admin"))
	root := secrets["the admin's token"]
	file := writeFile(t, root+"\n")
	env := []string{
		"MINIO_ROOT_USER=minio", "MINIO_ROOT_PASSWORD=" + secrets["the store's password"], "AWS_SECRET_ACCESS_KEY=" + secrets["AWS's key"],
	}
	s := serveIn(t, dir, nil, env, "serve", "--nats-listen", "127.0.0.1:0", "--tokens", "tokens", "--log-level", "debug")
	as := []string{"--server", s.Info.API, "--token-file", file, "--log-level", "debug"}
	call := func(args ...string) string { return mustTool(t, dir, append(as[:len(as):len(as)], args...)...) }
	join := regexp.MustCompile(`outbid_join_\S+`).FindString(call("worker", "token", "--name", "n1"))
	secrets["the join token"] = join
	call("worker", "join", "--join-token", writeFile(t, join+"\n"), "--credentials", "n1")
	secrets.seeds(t, s.Info.Keys)
	secrets.seeds(t, filepath.Join(dir, "n1"))
	worker := start(t, dir, "worker", "--credentials", "n1", "--devices", "cpu:1", "--dir", "work", "--log-level", "debug", "--trust-trials")
	spec := writeFile(t, "name: plain\nspace: {x: {float: {low: 0, high: 1}}}\nmetric: loss\nmode: min\ntuner: {random: {}}\nlimits: {trials: 1}\n"+
		"program: {shell: 'echo saved > $OUTBID_CHECKPOINT_OUT; echo \"{{\\\"step\\\": 1, \\\"loss\\\": {x}}}\" >> $OUTBID_REPORT'}\n")
	secrets.hasNone(t, "outbid run", call("run", spec))
	refused, _ := tool(t, dir, "--server", s.Info.API, "--token", root+"x", "--log-level", "debug", "ls")
	secrets.hasNone(t, "what a wrong token is told", refused)
	for _, args := range [][]string{{"doctor"}, {"nodes", "-o", "json"}, {"show", "plain-1", "-o", "json"}, {"export", "--ledger", "-"}} {
		text, _ := tool(t, dir, append(as[:len(as):len(as)], args...)...) // the doctor may find a problem
		secrets.hasNone(t, "outbid "+strings.Join(args, " "), text)
	}
	for _, path := range []string{"/metrics", "/v1/server", "/v1/nodes", "/v1/sweeps", "/v1/ledger", "/v1/tenants"} {
		secrets.hasNone(t, "GET "+path, get(t, s.Info.API+path, root))
	}
	worker.stop()
	s.stop()
	for what, p := range map[string]*proc{"the server's log": s.proc, "the worker's log": worker} {
		text, _ := p.out.text()
		secrets.hasNone(t, what, text)
	}
}

func mustTool(t *testing.T, dir string, args ...string) string {
	t.Helper()
	text, code := tool(t, dir, args...)
	if code != 0 {
		t.Fatalf("outbid %v: exit code %d:\n%s", args, code, text)
	}
	return text
}
