package endtoend

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// tool runs a command to its end and returns its output and exit code.
func tool(t testing.TB, dir string, args ...string) (string, int) {
	t.Helper()
	p := start(t, dir, args...)
	<-p.ended
	text, _ := p.out.text()
	return text, p.cmd.ProcessState.ExitCode()
}

func TestBeyondLoopbackWantsSecretsAndSaysHowToMakeThem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	refused := []string{"serve", "--api", "0.0.0.0:0", "--nats-listen", "127.0.0.1:0", "--data", "refused"}
	text, code := tool(t, dir, refused...)
	if code != 2 || strings.Count(strings.TrimSpace(text), "\n") != 0 || !strings.Contains(text, "0.0.0.0") {
		t.Fatalf("exit code %d:\n%s", code, text)
	}
	if made, err := os.ReadDir(filepath.Join(dir, "refused", "nats")); err == nil {
		t.Errorf("a server that was refused had begun: %v", made)
	}
	commands := regexp.MustCompile(`'outbid ([^']+)'`).FindAllStringSubmatch(text, -1)
	if len(commands) != 2 {
		t.Fatalf("it names %d commands:\n%s", len(commands), text)
	}
	var token string
	for _, c := range commands {
		args := strings.Fields(strings.Replace(c[1], "NAME", "127.0.0.2", 1))
		out, code := tool(t, dir, args...)
		if code != 0 {
			t.Fatalf("outbid %v: exit code %d:\n%s", args, code, out)
		}
		if args[0] == "token" {
			token = strings.Fields(out)[0]
			if !strings.HasPrefix(token, "outbid_") {
				token = regexp.MustCompile(`outbid_\S+`).FindString(out)
			}
		}
	}
	s := startServer(t, dir, "secure", "serve", "--nats-listen", "127.0.0.2:0", "--data", filepath.Join(dir, "data"),
		"--tls-cert", "tls/cert.pem", "--tls-key", "tls/key.pem", "--tokens", "tokens")
	s.until("next: outbid worker")
	useSecrets(t, dir, s.file, token)
}

// useSecrets calls a server that requires a token and a certificate, with and without them.
func useSecrets(t *testing.T, dir, ready, token string) {
	t.Helper()
	data, err := os.ReadFile(ready)
	if err != nil {
		t.Fatal(err)
	}
	url := regexp.MustCompile(`https://[0-9.:]+`).FindString(string(data))
	for want, args := range map[string][]string{
		"--ca FILE":        {"--token", token, "ls"},
		"--token-file":     {"--ca", "tls/ca.pem", "ls"},
		"not known":        {"--ca", "tls/ca.pem", "--token", token + "x", "ls"},
		"doctor --ca FILE": {"doctor"},
		"only a token, as": {"--ca", "tls/ca.pem", "--token-file", writeFile(t, token+" ada default user\n"), "ls"},
	} {
		text, code := tool(t, dir, append([]string{"--server", url}, args...)...)
		if code == 0 || !strings.Contains(text, want) {
			t.Errorf("%v: exit code %d, not told %q:\n%s", args, code, want, text)
		}
	}
	if text, code := tool(t, dir, "--server", url, "--ca", "tls/ca.pem", "--token", token, "ls"); code != 0 {
		t.Errorf("with everything: exit code %d:\n%s", code, text)
	}
	clear, code := tool(t, dir, "--server", strings.Replace(url, "https", "http", 1), "ls")
	if code == 0 || !strings.Contains(clear, "--server "+url) {
		t.Errorf("in the clear: exit code %d:\n%s", code, clear)
	}
	added, code := tool(t, dir, "token", "new", "--file", "tokens", "--name", "late", "--role", "viewer")
	if code != 0 {
		t.Fatal(added)
	}
	late := regexp.MustCompile(`outbid_\S+`).FindString(added)
	poll(t, "the running server to know a new token", func() bool {
		_, code := tool(t, dir, "--server", url, "--ca", "tls/ca.pem", "--token", late, "ls")
		return code == 0
	})
}

func writeFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
