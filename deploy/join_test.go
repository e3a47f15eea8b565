package deploy

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cluster runs the programs of compose.yaml without containers.
type cluster struct {
	t        *testing.T
	dir, bin string
	env      []string
}

func (c *cluster) command(args []string) *exec.Cmd {
	if args[0] == "outbid" {
		return exec.Command(filepath.Join(c.bin, "outbid"), args[1:]...)
	}
	return exec.Command(args[0], args[1:]...)
}

// start runs a program until the end of the test.
func (c *cluster) start(args ...string) *bytes.Buffer {
	c.t.Helper()
	out := new(bytes.Buffer)
	cmd := c.command(args)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.dir, c.env, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // including the children of the script
		_ = cmd.Wait()
		if c.t.Failed() {
			c.t.Logf("%v:\n%s", args, out)
		}
	})
	return out
}

// run runs a program to its end.
func (c *cluster) run(args ...string) (string, error) {
	cmd := c.command(args)
	cmd.Dir, cmd.Env = c.dir, c.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = errors.Join(err, errors.New(string(out)))
	}
	return string(out), err
}

func (c *cluster) poll(what string, done func() bool) {
	c.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(2 * time.Minute)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			c.t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// TestWorkersJoinAsInCompose sets up, invites and starts two workers with the scripts of compose. Each uses its own
// token once, and does not need one when it restarts.
func TestWorkersJoinAsInCompose(t *testing.T) {
	t.Parallel()
	secrets := setUp(t)
	bin := t.TempDir()
	if err := os.Symlink(outbid(t), filepath.Join(bin, "outbid")); err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs("compose")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, dir: t.TempDir(), bin: bin, env: []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "OUTBID_CA_FILE=" + filepath.Join(secrets, "public", "ca.pem"),
	}}
	ready := filepath.Join(c.dir, "ready.json")
	c.start("outbid", "serve", "--data=data", "--api=127.0.0.1:0", "--nats-listen=127.0.0.1:0", "--ready-file="+ready,
		"--tls-cert="+secrets+"/serve/cert.pem", "--tls-key="+secrets+"/serve/key.pem", "--tokens="+secrets+"/serve/tokens",
		"--keys="+secrets+"/serve/keys")
	url := ""
	c.poll("the server", func() bool {
		data, err := os.ReadFile(ready)
		_, rest, _ := strings.Cut(string(data), `"https://`)
		host, _, ok := strings.Cut(rest, `"`)
		url = "https://" + host
		return err == nil && ok
	})
	c.env = append(c.env, "OUTBID_URL="+url)
	invites, admin := filepath.Join(secrets, "invites"), filepath.Join(secrets, "admin", "admin.token")
	invite := func(n string) {
		if _, err := c.run("/bin/sh", filepath.Join(here, "invite.sh"), invites, admin, n); err != nil {
			t.Fatal(err)
		}
	}
	invite("1")
	invite("2")
	trust := "--trust-trials" // only root can run without it
	if help, err := c.run("outbid", "worker", "--help"); err != nil || !strings.Contains(help, trust) {
		trust = "--log-level=info"
	}
	for _, dir := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(c.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
		c.start("/bin/sh", filepath.Join(here, "worker.sh"), invites, filepath.Join(c.dir, dir), "--devices=cpu:1", trust)
	}
	c.poll("both workers", func() bool {
		out, err := c.run("outbid", "nodes", "-o", "json", "--token-file", admin)
		return err == nil && strings.Count(out, `"up"`) == 2 && strings.Contains(out, "worker-1") && strings.Contains(out, "worker-2")
	})
	left, err := filepath.Glob(filepath.Join(invites, "*.token"))
	if err != nil || len(left) > 0 {
		t.Errorf("tokens are left: %v, %v", left, err)
	}
	for _, dir := range []string{"one", "two"} {
		if _, err := os.Stat(filepath.Join(c.dir, dir, "invite")); err == nil {
			t.Errorf("worker %s keeps its token", dir)
		}
	}
	invite("2") // a restart does not create tokens for workers that have joined
	if left, err := filepath.Glob(filepath.Join(invites, "*.token")); err != nil || len(left) > 0 {
		t.Errorf("tokens were made twice: %v, %v", left, err)
	}
}
