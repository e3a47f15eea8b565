package deploy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// node is a real Kubernetes node with the shell in which the chart's README is followed.
type node struct {
	t *testing.T
	// dir is the shell's directory, address the node's address.
	dir, address string
	in           io.Writer
	out          *bufio.Reader
	// serial is that of the API's certificate before it is replaced.
	serial string
	// read is called with each line of output; it may be nil.
	read func(line string)
}

// blockTimeout is how long a block of commands may take: an upgrade of a loaded machine takes minutes.
const blockTimeout = 10 * time.Minute

// ranFile gets a line for each command that the shell runs.
const ranFile = "commands-that-ran"

// newNode starts the shell, with the programs, the chart and the store's credentials.
func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir(), address: os.Getenv("NODE_ADDRESS")}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "deploy"), filepath.Join(n.dir, "deploy")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash")
	cmd.Dir = n.dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(root, "bin")+":"+filepath.Dir(helm(t))+":"+os.Getenv("PATH"), "HOME="+n.dir,
		"AWS_ACCESS_KEY_ID=outbid", "AWS_SECRET_ACCESS_KEY=a-secret-of-the-test", "STORE="+n.store())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = writer, writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	t.Cleanup(func() { _ = cmd.Wait() })
	n.in, n.out = in, bufio.NewReader(reader)
	n.run("umask 077")
	return n
}

func (n *node) store() string {
	return "s3://outbid/checkpoints?endpoint=http://" + n.address + ":9000"
}

func (n *node) write(file, text string) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, file), []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// follow runs a block of the README, and records the commands that the shell runs.
func (n *node) follow(block string) {
	n.t.Helper()
	n.run("set -o functrace; trap 'printf \"%s\\n\" \"$BASH_COMMAND\" >> " + filepath.Join(n.dir, ranFile) + "' DEBUG\n" +
		block + "\ntrap - DEBUG")
}

// run runs commands in the shell, fails the test if one fails, and returns their output.
func (n *node) run(commands string) string {
	n.t.Helper()
	const end = "-- end of the block --"
	n.t.Logf("%s %s", time.Now().Format(time.TimeOnly), commands)
	begun := time.Now()
	if _, err := fmt.Fprintf(n.in, "set -euo pipefail\n%s\necho; echo '%s'\n", commands, end); err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(n.t.Context(), blockTimeout)
	defer cancel()
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		var text strings.Builder
		for {
			line, err := n.out.ReadString('\n')
			if err != nil || line == end+"\n" {
				done <- result{text.String(), err}
				return
			}
			text.WriteString(line)
			if n.read != nil {
				n.read(line)
			}
		}
	}()
	select {
	case r := <-done:
		n.t.Logf("after %.1f s:\n%s", time.Since(begun).Seconds(), r.text)
		if r.err != nil {
			n.fail(commands)
		}
		return r.text
	case <-ctx.Done():
		n.fail(commands)
		return ""
	}
}

// fail ends the test with the state of the cluster.
func (n *node) fail(commands string) {
	n.t.Helper()
	for _, args := range []string{
		"get pods,pvc -A -o wide", "-n ml get events --sort-by=.lastTimestamp",
		"-n ml logs -l app.kubernetes.io/component=server --tail 20 --prefix", "-n ml logs -l app.kubernetes.io/component=worker --tail 20 --prefix",
	} {
		out, err := exec.CommandContext(context.WithoutCancel(n.t.Context()), "kubectl", strings.Fields(args)...).CombinedOutput()
		n.t.Logf("kubectl %s: %v\n%s", args, err, out)
	}
	n.t.Fatalf("a command failed, or did not end within %v:\n%s", blockTimeout, commands)
}

func (n *node) expect(commands, want string) {
	n.t.Helper()
	if got := n.run(commands); !strings.Contains(got, want) {
		n.t.Errorf("%s: no %q in\n%s", commands, want, got)
	}
}
