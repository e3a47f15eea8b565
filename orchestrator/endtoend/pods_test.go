package endtoend

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/pods/podstest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// podCluster is a server that admits the pods of one ServiceAccount.
type podCluster struct {
	*server
	t      *testing.T
	issuer *podstest.Issuer
	dir    string
}

func newPodCluster(t *testing.T) *podCluster {
	t.Helper()
	c := &podCluster{t: t, issuer: podstest.New(t), dir: t.TempDir()}
	keys := filepath.Join(c.dir, "keys.pem")
	if err := os.WriteFile(keys, c.issuer.PEM(t), 0o600); err != nil {
		t.Fatal(err)
	}
	c.server = serve(t, c.dir, "serve", "--nats-listen", "127.0.0.1:0", "--service-accounts", "team/worker",
		"--service-account-issuer", podstest.URL, "--service-account-jwks", keys)
	return c
}

// token writes the token of a pod as the kubelet does.
func (c *podCluster) token(pod, uid string, changes map[string]any) (file string) {
	return writeFile(c.t, c.issuer.Token(c.t, pod, uid, "node-1", time.Now(), changes)+"\n")
}

// worker starts the worker of a pod.
func (c *podCluster) worker(pod, uid string, args ...string) *proc {
	c.t.Helper()
	return start(c.t, c.dir, append([]string{
		"worker", "--server", c.Info.API, "--service-account-token", c.token(pod, uid, nil), "--devices", "cpu:1",
		"--dir", filepath.Join(c.dir, "work-"+uid),
	}, args...)...)
}

// awaitUp waits until a node is up with another boot than before, and returns its boot.
func (c *podCluster) awaitUp(node, before string) (boot string) {
	c.t.Helper()
	poll(c.t, node+" is up", func() bool {
		got, err := c.ListNodes(c.t.Context(), &outbidv1.ListNodesRequest{})
		if err != nil {
			c.t.Fatal(err)
		}
		for _, n := range got.GetNodes() {
			if n.GetInfo().GetName() == node && n.GetState() == outbidv1.NodeState_NODE_STATE_UP && n.GetInfo().GetBoot() != before {
				boot = n.GetInfo().GetBoot()
			}
		}
		return boot != ""
	})
	return boot
}

// A pod joins with its token, and again after it was killed, deleted and created again. Others cannot take its name.
func TestPodsJoinAndComeBack(t *testing.T) {
	t.Parallel()
	c := newPodCluster(t)
	first := c.worker("w-0", "u-1")
	boot := c.awaitUp("w-0", "")
	id := c.submit(shell("work", c.dir, `touch "$DIR/began"; while [ ! -e "$DIR/go" ]; do sleep 0.1; done`+reportOne, 1))
	waitFile(t, first, filepath.Join(c.dir, "began"))
	first.kill() // the container restarts
	again := c.worker("w-0", "u-1")
	boot = c.awaitUp("w-0", boot)

	refused := func(what, want, pod, uid string, changes map[string]any, args ...string) {
		t.Helper()
		text, code := tool(t, c.dir, append([]string{
			"worker", "join", "--server", c.Info.API, "--service-account-token", c.token(pod, uid, changes), "--credentials", "refused",
		}, args...)...)
		if code == 0 || !strings.Contains(text, want) {
			t.Errorf("%s: exit code %d, want %q in:\n%s", what, code, want, text)
		}
	}
	refused("another audience", `expected audience "outbid"`, "w-1", "u-2", map[string]any{"aud": "other"})
	refused("a made-up name", "must be the name of the pod or of its Kubernetes node", "w-1", "u-2", nil, "--name", "w-0")
	refused("an older token", "older than that of the pod team/w-0", "w-0", "u-0", map[string]any{"iat": time.Now().Add(-time.Hour).Unix()})
	byNode := c.worker("w-7", "u-7", "--name", "node-1")
	c.awaitUp("node-1", "")
	refused("another pod's name", "runs in the pod team/w-7, which is alive", "w-8", "u-8", nil, "--name", "node-1")
	byNode.stop()
	third := c.worker("w-8", "u-8", "--name", "node-1") // its predecessor has left
	c.awaitUp("node-1", "")

	successor := c.worker("w-0", "u-2") // the pod is deleted, and a new one comes; its worker is still there for a while
	c.awaitUp("w-0", boot)
	again.kill()
	if err := os.WriteFile(filepath.Join(c.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.mustDone(id)
	third.stop()
	successor.stop()
}
