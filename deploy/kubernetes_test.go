package deploy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/csv"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/oidc/oidctest"
)

// TestKubernetes follows the README of the chart on a real node, block by block as printed, with a store and an identity
// provider on the node's address. Between the blocks it checks what they did, deletes pods in the middle of a sweep, and lets a
// sweep run during the upgrade.
func TestKubernetes(t *testing.T) {
	if os.Getenv("OUTBID_TEST_KUBERNETES") == "" {
		t.Skip("no Kubernetes: make test-kubernetes starts a node and sets OUTBID_TEST_KUBERNETES")
	}
	n := newNode(t)
	n.startStore()
	n.startProvider()
	for _, b := range readPage(t, chartPage).blocks {
		n.before(b)
		n.follow(b)
		n.after(b)
	}
	data, err := os.ReadFile(filepath.Join(n.dir, ranFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range notRun(readPage(t, chartPage).commands(), strings.Split(string(data), "\n")) {
		t.Errorf("%s prints a command that was not run: %s", chartPage, c)
	}
}

// before does what the text before a block says.
func (n *node) before(block string) {
	n.t.Helper()
	switch {
	case strings.Contains(block, "helm upgrade"):
		n.submit("upgrade", 8, 25)
		n.run("sed -i -e 's/^image: .*/image: outbid:next/' -e 's/training:1/training:2/' values.yaml")
	case strings.Contains(block, "outbid login"):
		n.read = n.signIn
	case strings.Contains(block, "generic outbid-tls") && strings.Contains(block, "reload"):
		n.serial = n.servedSerial()
		n.submit("certificate", 4, 20)
	case strings.Contains(block, "generic outbid-s3") && strings.Contains(block, "replace"):
		n.run("kill $store; wait $store || true; export AWS_SECRET_ACCESS_KEY=another-secret-of-the-test")
		n.startStore()
	case strings.Contains(block, "helm uninstall"):
		n.checkLogs()
	}
}

// after checks what a block did.
func (n *node) after(block string) {
	n.t.Helper()
	n.read = nil
	switch {
	case strings.Contains(block, "helm install"):
		n.checkNodes()
	case strings.Contains(block, "outbid login"):
		n.expect("outbid whoami", "ann")
	case strings.Contains(block, "run sweep.yaml"):
		n.insideUse()
		n.deletePods()
	case strings.Contains(block, "outbid nodes uncordon"):
		n.checkNodes()
	case strings.Contains(block, "outbid audit verify"):
		n.expect("outbid audit --since 1h --token-file root.token", "ada")
		n.expect("outbid usage --since 24h --by tenant --token-file root.token", "vision")
	case strings.Contains(block, "helm upgrade"):
		n.checkImages("outbid:next", "registry.example.org/training:2")
	case strings.Contains(block, "helm rollback"):
		n.checkImages("outbid:", "registry.example.org/training:1")
		n.finish("upgrade", 8, 25)
	case strings.Contains(block, "generic outbid-tls") && strings.Contains(block, "reload"):
		n.checkCertificates()
		n.finish("certificate", 4, 20)
	case strings.Contains(block, "generic outbid-s3") && strings.Contains(block, "replace"):
		n.submit("store", 2, 3)
		n.finish("store", 2, 3)
	case strings.Contains(block, "backup restore"):
		for _, sweep := range []string{"example-1", "long-1", "upgrade-1"} {
			n.expect("outbid --token-file ada.token show "+sweep, "done")
		}
		n.checkNodes()
	}
}

// testValues differ from those of the README by what a node of two processors needs.
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

// startStore starts MinIO on the node's address.
func (n *node) startStore() {
	n.t.Helper()
	n.run(fmt.Sprintf(`MINIO_ROOT_USER=$AWS_ACCESS_KEY_ID MINIO_ROOT_PASSWORD=$AWS_SECRET_ACCESS_KEY \
  %q server --quiet --address %s:9000 --console-address 127.0.0.1:9001 minio >> minio.log 2>&1 &
store=$!
until curl -sf http://%[2]s:9000/minio/health/ready; do sleep 0.2; done`, os.Getenv("OUTBID_TEST_MINIO"), n.address))
}

// startProvider starts oidc-provider on the node's address, with a certificate of an authority of its own. It writes this
// authority and the values, as a reader does.
func (n *node) startProvider() {
	n.t.Helper()
	n.run("outbid tls new --dir idp --host " + n.address + "; mkdir access; cp idp/ca.pem access/idp.pem")
	script, err := filepath.Abs("../orchestrator/endtoend/testdata/oidcprovider/provider.mjs")
	if err != nil {
		n.t.Fatal(err)
	}
	cmd := exec.CommandContext(n.t.Context(), "node", script)
	cmd.Dir = os.Getenv("OUTBID_OIDC_PROVIDER")
	cmd.Env = append(os.Environ(), "HOST="+n.address, "PORT=8443", "CERT="+filepath.Join(n.dir, "idp/cert.pem"), "KEY="+filepath.Join(n.dir, "idp/key.pem"))
	log, err := os.Create(filepath.Join(n.dir, "idp.log"))
	if err != nil {
		n.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = cmd.Wait() })
	issuer := "https://" + n.address + ":8443"
	n.run("until curl -sf --cacert access/idp.pem " + issuer + "/.well-known/openid-configuration; do sleep 0.2; done")
	n.write("values.yaml", fmt.Sprintf(testValues, n.store(), issuer, oidctest.ClientID))
}

// signIn opens the link that 'outbid login' prints, as the person ann.
func (n *node) signIn(line string) {
	link := regexp.MustCompile(`open (https://\S+)`).FindStringSubmatch(line)
	if link == nil {
		return
	}
	browser := oidctest.Browser()
	browser.Transport = n.trusting("idp/ca.pem")
	if at, page, err := oidctest.SignIn(browser, link[1], "ann"); err != nil {
		n.t.Errorf("sign in at %s: %v\n%s", at, err, page)
	}
}

// checkNodes waits until both workers have joined with the tokens of their pods.
func (n *node) checkNodes() {
	n.t.Helper()
	n.run(`until outbid --token-file root.token nodes -o json | grep -c '"state": *"up"' | grep -q 2; do sleep 0.5; done`)
}

// checkImages checks those of the two servers and the two workers.
func (n *node) checkImages(server, worker string) {
	n.t.Helper()
	got := n.run(`kubectl -n ml get pods -l 'app.kubernetes.io/component in (server,worker)' -o jsonpath='{.items[*].spec.containers[0].image}'`)
	if strings.Count(got, server) != 2 || strings.Count(got, worker) != 2 || strings.Contains(got, "outbid:next") != (server == "outbid:next") {
		n.t.Errorf("the images are %s, want %s and %s", got, server, worker)
	}
}

// insideUse uses the API from a pod, through the Service's name.
func (n *node) insideUse() {
	n.t.Helper()
	n.expect(`kubectl -n ml exec outbid-worker-cpu-0 -- outbid --server https://outbid.ml.svc:7700 --ca /tls/ca.crt --token "$(cat ada.token)" ls`,
		"example-1")
}

// deletePods deletes the leader's pod and a worker's in the middle of a sweep.
func (n *node) deletePods() {
	n.t.Helper()
	n.submit("long", 4, 20)
	n.run(`kubectl -n ml delete pod -l outbid.dev/leader=true --wait=false
kubectl -n ml delete pod outbid-worker-cpu-1 --wait=false`)
	n.finish("long", 4, 20)
}

// submit submits a sweep of trials with steps of a second, and waits for its first reports.
func (n *node) submit(name string, trials, steps int) {
	n.t.Helper()
	n.write(name+".yaml", fmt.Sprintf(`name: %s
space: {lr: {float: {low: 0.001, high: 1}}}
metric: loss
mode: min
tuner: {random: {max_steps: %d}}
limits: {trials: %d}
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
`, name, steps, trials))
	n.run(fmt.Sprintf(`outbid --token-file ada.token submit %[1]s.yaml
until outbid --token-file ada.token show %[1]s-1 -o json | grep -q '"steps": *[1-9]'; do sleep 0.5; done`, name))
}

// finish waits until a sweep is done. Every trial must have completed, with each step reported once.
func (n *node) finish(name string, trials, steps int) {
	n.t.Helper()
	n.run(fmt.Sprintf(`until outbid --token-file ada.token show %[1]s-1 -o json > %[1]s.json && grep -q '"state": *"done"' %[1]s.json; do sleep 1; done
outbid --token-file ada.token export %[1]s-1`, name))
	n.checkSteps(name+"-1-reports.csv", trials, steps)
}

// checkSteps reads the exported reports of a sweep: trials, each with each step once.
func (n *node) checkSteps(file string, want, steps int) {
	n.t.Helper()
	f, err := os.Open(filepath.Join(n.dir, file))
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
		for s := range steps {
			if at := fmt.Sprint(name, " ", s+1); seen[at] != 1 {
				n.t.Errorf("trial and step %s: %d reports", at, seen[at])
			}
		}
	}
	if len(trials) != want || len(seen) != steps*want {
		n.t.Errorf("%s: %d trials with %d steps, want %d with %d", file, len(trials), len(seen), want, steps*want)
	}
}

// checkLogs fails for what servers and workers must not have to say.
func (n *node) checkLogs() {
	n.t.Helper()
	for component, unwanted := range map[string][]string{"worker": {"cannot remove"}, "server": {"every user of this machine"}} {
		logs := n.run("kubectl -n ml logs -l app.kubernetes.io/component=" + component + " --tail 1000")
		for _, text := range unwanted {
			if strings.Contains(logs, text) {
				n.t.Errorf("the logs of a %s have %q", component, text)
			}
		}
	}
}

// trusting returns a transport that trusts an authority.
func (n *node) trusting(ca string) *http.Transport {
	pem, err := os.ReadFile(filepath.Join(n.dir, ca))
	if err != nil {
		n.t.Error(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}}
}

// servedSerial returns the serial number of the certificate that the API presents.
func (n *node) servedSerial() string {
	n.t.Helper()
	return n.run("openssl s_client -connect localhost:7700 < /dev/null 2> /dev/null | openssl x509 -noout -serial")
}

// checkCertificates waits until the API presents another certificate than before, and fails unless each NATS has read it.
func (n *node) checkCertificates() {
	n.t.Helper()
	n.run("want=$(openssl x509 -noout -serial -in tls/cert.pem)\n" +
		"until openssl s_client -connect localhost:7700 < /dev/null 2> /dev/null | openssl x509 -noout -serial | grep -qx $want; do sleep 0.5; done")
	if n.servedSerial() == n.serial {
		n.t.Errorf("the API still presents the certificate %s", n.serial)
	}
	for i := range 3 {
		n.run(fmt.Sprintf("until kubectl -n ml logs outbid-nats-%d | grep -q 'Reloaded server configuration'; do sleep 0.5; done", i))
	}
	n.checkNodes()
}
