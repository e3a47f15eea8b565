package endtoend

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// doctorFault is a row of the guide's table of the doctor's findings.
type doctorFault struct{ check, fault, line string }

// doctorFaults reads the table of docs/operate/troubleshoot.md.
func doctorFaults(t testing.TB) []doctorFault {
	t.Helper()
	text, err := os.ReadFile("../../docs/operate/troubleshoot.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## What `outbid doctor` finds\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var all []doctorFault
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.+) \\| `([^`]+)` \\|$").FindAllStringSubmatch(section, -1) {
		all = append(all, doctorFault{row[1], row[2], row[3]})
	}
	return all
}

// doctorLine is a check of the doctor's output.
type doctorLine struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Fix    string `json:"fix"`
}

// doctorFinds runs the doctor, and fails unless it reports a fault of the guide's table.
func doctorFinds(t testing.TB, fault string, args ...string) {
	t.Helper()
	out, code := tool(t, t.TempDir(), append([]string{"doctor", "-o", "json"}, args...)...)
	mustReport(t, fault, out, code)
}

// mustReport fails unless the doctor's output has a failed check for a fault of the guide's table, with a fix.
func mustReport(t testing.TB, fault, out string, code int) {
	t.Helper()
	var lines []doctorLine
	if err := json.Unmarshal([]byte(out), &lines); err != nil {
		t.Fatalf("doctor: %v\n%s", err, out)
	}
	for _, f := range doctorFaults(t) {
		if f.fault != fault {
			continue
		}
		name := strings.TrimSuffix(f.check, "NAME")
		if code != 1 || !slices.ContainsFunc(lines, func(l doctorLine) bool {
			return !l.OK && strings.HasPrefix(l.Name, name) && strings.Contains(l.Detail, f.line) && l.Fix != ""
		}) {
			t.Errorf("%s: exit code %d, and %s does not fail with %q and a fix:\n%s", fault, code, f.check, f.line, out)
		}
		return
	}
	t.Errorf("docs/operate/troubleshoot.md has no row for %q", fault)
}

// TestTheDoctorFindsEveryFaultOfTheGuide checks that a test causes each fault of the guide's table.
func TestTheDoctorFindsEveryFaultOfTheGuide(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	caused := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range regexp.MustCompile(`(?:doctorFinds|mustReport)\([\w.]+, "([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
			caused[call[1]] = true
		}
	}
	faults := doctorFaults(t)
	if len(faults) < 20 {
		t.Errorf("the table has %d rows that can be read", len(faults))
	}
	for _, f := range faults {
		if !caused[f.fault] {
			t.Errorf("no test causes %q", f.fault)
		}
	}
}

// python writes a program that answers like a Python interpreter.
func python(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	return path
}

// TestTheDoctorAboutAServer causes faults of one server, its workers and this machine.
func TestTheDoctorAboutAServer(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	at := []string{"--server", c.Info.API}
	doctorFinds(t, "no worker is up", at...)
	doctorFinds(t, "no Python is installed", append(at, "--python", "no-such-python")...)
	missing := python(t, "echo \"ModuleNotFoundError: No module named 'outbid'\" >&2; exit 1")
	doctorFinds(t, "the SDK is missing", append(at, "--python", missing)...)
	doctorFinds(t, "the SDK is another release", append(at, "--python", python(t, "echo 3.12.1 0.0.1"))...)

	c.worker("w", "cpu:1", "")
	start(t, c.dir, "worker", "--nats", c.Info.NATS, "--keys", c.Info.Keys, "--name", "full", "--devices", "cpu:1",
		"--dir", filepath.Join(c.dir, "full"), "--disk-margin", "1PiB")
	poll(t, "the fault of the full node", func() bool {
		nodes := c.nodes()
		return len(nodes) == 2 && len(nodes[0].GetFaults()) == 1
	})
	doctorFinds(t, "its disk is full, or another check fails", at...)
	c.workers["w"].kill()
	store := filepath.Join(c.dir, "store")
	if err := os.Rename(store, store+".gone"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(store, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	doctorFinds(t, "checkpoints cannot be stored", at...)
	poll(t, "the lost node", func() bool { return c.nodes()[1].GetState() == outbidv1.NodeState_NODE_STATE_LOST })
	doctorFinds(t, "the worker is silent", at...)
	c.pause()
	doctorFinds(t, "it hangs", at...)
	c.kill()
	doctorFinds(t, "no server runs at the address", at...)
}

// TestTheDoctorAboutAccess calls servers with a certificate and tokens in wrong ways.
func TestTheDoctorAboutAccess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeCertificate(t, dir, 10*24*time.Hour)
	token, code := tool(t, dir, "token", "new", "--file", "tokens", "--name", "ann")
	if code != 0 {
		t.Fatal(token)
	}
	s := serve(t, dir, "serve", "--nats-listen", "127.0.0.1:0", "--tls-cert", "cert.pem", "--tls-key", "key.pem", "--tokens", "tokens")
	ca := filepath.Join(dir, "cert.pem")
	doctorFinds(t, "its certificate is from an unknown authority", "--server", s.Info.API)
	doctorFinds(t, "it has a certificate, and the address begins with http:", "--server", "http://"+strings.TrimPrefix(s.Info.API, "https://"))
	doctorFinds(t, "the token is missing", "--server", s.Info.API, "--ca", ca)
	doctorFinds(t, "it ends within two weeks", "--server", s.Info.API, "--ca", ca, "--token-file", writeFile(t, firstLine(token)+"\n"))
	s.stop()
}
