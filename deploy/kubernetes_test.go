package deploy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/oidc/oidctest"
)

// node is a real Kubernetes node with the shell in which the chart's README is followed.
type node struct {
	t *testing.T
	// dir is the shell's directory, address the node's address.
	dir, address string
	in           io.Writer
	out          *bufio.Reader
}

// blockTimeout is how long a block of commands may take: an upgrade of a loaded machine takes minutes.
const blockTimeout = 10 * time.Minute

// TestKubernetes follows the README of the chart on a real node, block by block as printed, with a store and an identity
// provider on the node's address. Between the blocks it deletes pods in the middle of a sweep.
func TestKubernetes(t *testing.T) {
	if os.Getenv("OUTBID_TEST_KUBERNETES") == "" {
		t.Skip("no Kubernetes: make test-kubernetes starts a node and sets OUTBID_TEST_KUBERNETES")
	}
	n := newNode(t)
	blocks := readmeBlocks(t, "chart/README.md")
	n.run("umask 077")
	n.startStore()
	for _, b := range blocks {
		switch {
		case strings.Contains(b, "generic outbid-tokens"):
			// The test's provider has a private authority, which a reader adds to this Secret too.
			b = strings.ReplaceAll(b, "--from-file=bindings.yaml", "--from-file=bindings.yaml --from-file=idp.pem")
		case strings.Contains(b, "helm upgrade"):
			n.run("sed -i 's/^image: .*/image: outbid:next/' values.yaml")
		}
		if strings.HasPrefix(b, "outbid login") {
			n.run("export SSL_CERT_FILE=$PWD/idp.pem")
		}
		n.run(b)
		switch {
		case strings.Contains(b, "helm install"):
			n.checkNodes()
		case strings.Contains(b, "outbid login"):
			n.expect("outbid whoami", "ann")
		case strings.Contains(b, "outbid --token-file ada.token run"):
			n.insideUse()
			n.deletePods()
		case strings.Contains(b, "helm upgrade"):
			n.expect("kubectl -n ml get pods -o jsonpath='{.items[*].spec.containers[0].image}'", "outbid:next")
		case strings.Contains(b, "backup restore"):
			n.expect("outbid --token-file ada.token show example-1", "done")
		}
	}
	if logs := n.run("kubectl -n ml logs -l app.kubernetes.io/component=worker --tail 1000"); strings.Contains(logs, "cannot remove") {
		n.t.Error("workers do not remove the files of trials")
	}
	n.run("helm uninstall outbid -n ml --wait --timeout 5m")
}

// newNode starts the shell and writes what a reader has: the programs, the chart, values and the store's credentials.
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
	n.run("outbid tls new --dir idp --host " + n.address + "; cp idp/ca.pem idp.pem")
	cert, err := tls.LoadX509KeyPair(filepath.Join(n.dir, "idp/cert.pem"), filepath.Join(n.dir, "idp/key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	idp := oidctest.NewTLS(t, n.address+":8443", cert, map[string]any{"sub": "1", "preferred_username": "ann", "groups": []string{"vision"}})
	n.write("values.yaml", fmt.Sprintf(testValues, n.store(), idp.URL(), oidctest.ClientID))
	return n
}

// testValues are those of the README, changed for a node of two processors.
const testValues = `image: ""
store: {url: %q}
server:
  resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 1Gi}}
  args:
  - --oidc-issuer-url=%s
  - --oidc-client-id=%s
  - --oidc-username-claim=preferred_username
  - --oidc-groups-claim=groups
  - --oidc-bindings=/tokens/bindings.yaml
  - --oidc-ca-file=/tokens/idp.pem
nats:
  resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 512Mi}}
workers:
  cpu:
    replicas: 2
    image: registry.example.org/training:1
    devices: cpu:2
    resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 256Mi}}
`

func (n *node) store() string {
	return "s3://outbid/checkpoints?endpoint=http://" + n.address + ":9000"
}

func (n *node) write(file, text string) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, file), []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// startStore starts MinIO on the node's address.
func (n *node) startStore() {
	n.t.Helper()
	n.run(fmt.Sprintf(`MINIO_ROOT_USER=$AWS_ACCESS_KEY_ID MINIO_ROOT_PASSWORD=$AWS_SECRET_ACCESS_KEY \
  %q server --quiet --address %s:9000 --console-address 127.0.0.1:9001 minio > minio.log 2>&1 &
until curl -sf http://%[2]s:9000/minio/health/ready; do sleep 0.2; done`, os.Getenv("OUTBID_TEST_MINIO"), n.address))
}

// run runs commands in the shell, fails the test if one fails, and returns their output.
func (n *node) run(commands string) string {
	n.t.Helper()
	const end = "-- end of the block --"
	n.t.Logf("%s %s", time.Now().Format(time.TimeOnly), commands)
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
		}
	}()
	select {
	case r := <-done:
		n.t.Log(r.text)
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

// checkNodes waits until both workers have joined with the tokens of their pods.
func (n *node) checkNodes() {
	n.t.Helper()
	n.run(`until outbid --token-file root.token nodes -o json | grep -c '"state": *"up"' | grep -q 2; do sleep 0.5; done`)
}

// insideUse uses the API from a pod, through the Service's name.
func (n *node) insideUse() {
	n.t.Helper()
	n.expect(`kubectl -n ml exec outbid-worker-cpu-0 -- outbid --server https://outbid.ml.svc:7700 --ca /tls/ca.crt --token "$(cat ada.token)" ls`,
		"example-1")
}

// deletePods deletes the leader's pod and a worker's in the middle of a sweep. Every trial must complete, with each step
// reported once.
func (n *node) deletePods() {
	n.t.Helper()
	n.write("long.yaml", `name: long
space: {lr: {float: {low: 0.001, high: 1}}}
metric: loss
mode: min
tuner: {random: {max_steps: 30}}
limits: {trials: 6}
program:
  shell: |
    step=$OUTBID_START_STEP
    while [ $step -lt $OUTBID_UNTIL_STEP ]; do
      step=$((step + 1))
      sleep 1
      echo $step > checkpoint.$step
      echo "{{\"step\": $step, \"loss\": {lr}, \"checkpoint\": \"checkpoint.$step\"}}" >> $OUTBID_REPORT
    done
    echo $step > $OUTBID_CHECKPOINT_OUT
`)
	n.run(`outbid --token-file ada.token submit long.yaml
until outbid --token-file ada.token show long-1 -o json | grep -q '"steps": *[1-9]'; do sleep 0.5; done
kubectl -n ml delete pod -l outbid.dev/leader=true --wait=false
kubectl -n ml delete pod outbid-worker-cpu-1 --wait=false
until outbid --token-file ada.token show long-1 -o json > long.json && grep -q '"state": *"done"' long.json; do sleep 1; done
outbid --token-file ada.token export long-1`)
	n.checkSteps()
}

// checkSteps reads the exported reports of the sweep long-1: six trials, each with the steps 1 to 30 once.
func (n *node) checkSteps() {
	n.t.Helper()
	f, err := os.Open(filepath.Join(n.dir, "long-1-reports.csv"))
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) == 0 {
		n.t.Fatalf("%v: %d rows", err, len(rows))
	}
	trial, step, superseded := slices.Index(rows[0], "trial"), slices.Index(rows[0], "step"), slices.Index(rows[0], "superseded")
	if trial < 0 || step < 0 || superseded < 0 {
		n.t.Fatalf("columns %v", rows[0])
	}
	seen, trials := map[string]int{}, map[string]bool{}
	for _, row := range rows[1:] {
		if row[superseded] == "true" {
			continue // repeated after the trial continued from an older checkpoint
		}
		seen[row[trial]+" "+row[step]]++
		trials[row[trial]] = true
	}
	for name := range trials {
		for s := range 30 {
			if at := fmt.Sprint(name, " ", s+1); seen[at] != 1 {
				n.t.Errorf("trial and step %s: %d reports", at, seen[at])
			}
		}
	}
	if len(trials) != 6 || len(seen) != 180 {
		n.t.Errorf("%d trials with %d steps, want 6 with 180", len(trials), len(seen))
	}
}

// readmeBlocks returns the blocks of commands of a page that are marked sh.
func readmeBlocks(t *testing.T, page string) []string {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, part := range strings.Split(string(data), "\n```sh\n")[1:] {
		block, _, _ := strings.Cut(part, "\n```")
		blocks = append(blocks, block)
	}
	if len(blocks) < 5 {
		t.Fatalf("%s has %d blocks", page, len(blocks))
	}
	return blocks
}
