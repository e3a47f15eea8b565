package endtoend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/outbid-dev/outbid/orchestrator/objects/objectstest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// bearerToken is a user's token.
type bearerToken string

func (b bearerToken) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearerToken) RequireTransportSecurity() bool { return true }

// stronghold is a cluster like a deployment for two tenants: tokens and TLS, S3, and two workers that have joined
// and run each trial as a separate user.
type stronghold struct {
	dir     string
	s3      *objectstest.Versity
	proc    *proc
	workers map[string]*proc
	api     string
	nats    string
	tokens  map[string]string
}

// newStronghold skips the test if trials cannot run as separate users.
func newStronghold(t *testing.T) *stronghold {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run trials as other users, so nothing confines them here")
	}
	dir, err := os.MkdirTemp("/var/tmp", "outbid-stronghold-") //nolint:usetesting // trials cannot see directories below /tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &stronghold{dir: dir, s3: objectstest.StartVersity(t), tokens: map[string]string{}, workers: map[string]*proc{}}
	s.run(t, "tls", "new", "--dir", "tls", "--host", "127.0.0.1")
	for name, args := range map[string][]string{
		"root": {"--tenant", "*", "--role", "admin"}, "ada": {"--tenant", "vision"}, "bob": {"--tenant", "speech"},
	} {
		s.tokens[name] = firstLine(s.run(t, append([]string{"token", "new", "--file", "tokens", "--name", name}, args...)...))
		if err := os.WriteFile(filepath.Join(s.dir, name+".token"), []byte(s.tokens[name]+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ready := filepath.Join(s.dir, "ready.json")
	s.proc = startIn(t, s.dir, nil, []string{"MINIO_ROOT_USER=" + s.s3.User, "MINIO_ROOT_PASSWORD=" + s.s3.Password},
		"serve", "--data", "data", "--ready-file", ready, "--api", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0",
		"--store", "s3://checkpoints/of/outbid?endpoint="+s.s3.Endpoint,
		"--tls-cert", "tls/cert.pem", "--tls-key", "tls/key.pem", "--tokens", "tokens")
	waitFile(t, s.proc, ready)
	data, err := os.ReadFile(ready)
	if err != nil {
		t.Fatal(err)
	}
	var info struct {
		API  string `json:"api"`
		NATS string `json:"nats"`
	}
	if err := json.Unmarshal(data, &info); err != nil {
		t.Fatal(err)
	}
	s.api, s.nats = info.API, info.NATS
	s.join(t, "gpu-1", "cpu:2")
	s.join(t, "gpu-2", "cpu:1")
	return s
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// run runs a command as the administrator.
func (s *stronghold) run(t *testing.T, args ...string) string {
	t.Helper()
	text, code := tool(t, s.dir, args...)
	if code != 0 {
		t.Fatalf("outbid %v: exit code %d:\n%s", args, code, text)
	}
	return text
}

// join joins a worker with a one-time token, and starts it.
func (s *stronghold) join(t *testing.T, name, devices string) {
	t.Helper()
	token := firstLine(s.run(t, "worker", "token", "--name", name, "--server", s.api, "--ca", "tls/ca.pem", "--token-file", "root.token"))
	file := writeFile(t, token+"\n")
	s.run(t, "worker", "join", "--server", s.api, "--ca", "tls/ca.pem", "--join-token", file, "--credentials", s.credentials(name))
	s.workers[name] = start(t, s.dir, "worker", "--credentials", s.credentials(name), "--devices", devices, "--dir",
		filepath.Join(s.dir, name, "work"))
}

func (s *stronghold) credentials(name string) string { return filepath.Join(s.dir, name, "identity") }

// as returns a client with a user's token.
func (s *stronghold) as(t *testing.T, person string) *server {
	t.Helper()
	pem, err := os.ReadFile(filepath.Join(s.dir, "tls", "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	conn, err := grpc.NewClient(strings.TrimPrefix(s.api, "https://"),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})),
		grpc.WithPerRPCCredentials(bearerToken(s.tokens[person])))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &server{proc: s.proc, OutbidServiceClient: outbidv1.NewOutbidServiceClient(conn)}
}

// openDir returns a directory that every user can access and write to.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "outbid-attack-") //nolint:usetesting // other users must reach it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // other users must write to it
		t.Fatal(err)
	}
	return dir
}

// trojan copies this test's program to where every user can run it.
func trojan(t *testing.T, dir string) string {
	t.Helper()
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	path := filepath.Join(dir, "trainer")
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755) //nolint:gosec // other users run it
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// victim runs a trial of a tenant with a secret and a checkpoint, which keeps running. It returns its process and
// directory.
func (s *stronghold) victim(t *testing.T, ada *server, dir string) (id string, pid int, at string) {
	t.Helper()
	script := `echo 'the secret of vision' > secret; cp secret "$OUTBID_CHECKPOINT_OUT"; echo "$$ $PWD" > "$DIR/victim"
echo '{{"step":1,"loss":1,"checkpoint":"'"$OUTBID_CHECKPOINT_OUT"'"}}' >> "$OUTBID_REPORT"; exec sleep 3600`
	spec := job{name: "victim", tuner: random(9), trials: 1}.bare()
	spec.Workload = &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{
		Command: []string{"sh", "-ec", script}, Env: map[string]string{"DIR": dir}, Grace: "1s",
	}}
	id = ada.submit(spec)
	poll(t, "the victim's checkpoint", func() bool {
		trials := ada.trials(id)
		return len(trials) == 1 && len(trials[0].GetCheckpoints()) > 0
	})
	data, err := os.ReadFile(filepath.Join(dir, "victim"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(data), &pid, &at); err != nil {
		t.Fatalf("%q: %v", data, err)
	}
	return id, pid, at
}

// TestTrainingCodeOwnsNothingButItsTrial checks that all attempts of a tenant's training code to take over the cluster
// fail.
func TestTrainingCodeOwnsNothingButItsTrial(t *testing.T) {
	t.Parallel()
	if help, _ := tool(t, t.TempDir(), "worker", "--help"); !strings.Contains(help, "--trial-user") {
		t.Skip("this program does not run trials as other users")
	}
	s := newStronghold(t)
	open := openDir(t)
	ada, bob := s.as(t, "ada"), s.as(t, "bob")
	victim, pid, at := s.victim(t, ada, open)
	key := ada.trials(victim)[0].GetCheckpoints()[0].GetKey()
	bucket := s.s3.Endpoint + "/checkpoints"
	k := knowledge{
		Files: map[string]string{
			"the worker's key": filepath.Join(s.credentials("gpu-1"), "nats.creds"), "the other worker's key": filepath.Join(s.credentials("gpu-2"), "nats.creds"),
			"the cluster's keys": filepath.Join(s.dir, "data", "keys", "orders.nk"), "the tokens": filepath.Join(s.dir, "tokens"),
			"the administrator's token": filepath.Join(s.dir, "root.token"), "the API's key": filepath.Join(s.dir, "tls", "key.pem"),
			"the worker's directory": filepath.Join(s.dir, "gpu-1", "work"), "shadow": "/etc/shadow",
		},
		NATS: s.nats, API: s.api, Bucket: bucket + "?list-type=2", Object: bucket + "/of/outbid/" + key,
		Victim: pid, VictimDir: at, Worker: s.workers["gpu-1"].cmd.Process.Pid, Server: s.proc.cmd.Process.Pid,
		Results: filepath.Join(open, "results"), Device: filepath.Join(open, "device"),
	}
	text, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	spec := job{name: "attacker", tuner: random(0), trials: 1}.bare()
	spec.Workload = &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{
		Command: []string{trojan(t, open)}, Env: map[string]string{"ATTACK": strings.NewReplacer("{", "{{", "}", "}}").Replace(string(text))},
	}}
	attack := bob.submit(spec)
	bob.mustDone(attack)
	s.judge(t, k.Results)
	if saved := bob.trials(attack)[0].GetCheckpoints(); len(saved) > 0 {
		t.Errorf("files of the worker's are its checkpoints: %v, which begins with %.100q", saved, bob.checkpoint(attack, 0))
	}

	device, err := os.Open(k.Device)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	if err := syscall.Flock(int(device.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Errorf("a daemon of the trial still holds the device after the trial's end: %v", err)
	}
	if got := string(ada.checkpoint(victim, 0)); got != "the secret of vision\n" {
		t.Errorf("the victim's checkpoint contains %q", got)
	}
	if trial := ada.trials(victim)[0]; trial.GetState() != outbidv1.TrialState_TRIAL_STATE_RUNNING || trial.GetRestarts() > 0 || syscall.Kill(pid, 0) != nil {
		t.Errorf("the victim is %s after %d restarts", trial.GetState(), trial.GetRestarts())
	}
	if sw, err := bob.GetSweep(t.Context(), &outbidv1.GetSweepRequest{Sweep: victim}); err == nil {
		t.Errorf("the attacker sees the victim's sweep: %v", sw)
	}
}

// judge reads the attacker's results, and fails for each successful attempt.
func (s *stronghold) judge(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var results []result
	if err := json.Unmarshal(data, &results); err != nil {
		t.Fatal(err)
	}
	if len(results) != len(attempts()) {
		t.Errorf("%d of %d attempts were made", len(results), len(attempts()))
	}
	secrets := []string{s.s3.Password, s.tokens["root"], s.tokens["ada"]}
	for _, r := range results {
		t.Run(r.Name, func(t *testing.T) {
			for _, secret := range secrets {
				if strings.Contains(r.Got, secret) {
					t.Error("it found a secret")
				}
			}
			switch r.Name {
			case "find secrets on command lines": // it may read them, but they do not contain any
			case "find credentials in its own environment":
				if strings.Contains(r.Got, "AWS_") || strings.Contains(r.Got, "MINIO_") || strings.Contains(r.Got, "TOKEN") {
					t.Errorf("it was given credentials:\n%s", r.Got)
				}
			case "leave a daemon that holds the device":
				if r.Got == "" {
					t.Errorf("the daemon did not begin, so its end shows nothing: %s", r.Why)
				}
			default:
				if r.Got != "" {
					t.Errorf("it got %s", r.Got)
				}
				t.Logf("refused: %s", r.Why)
			}
		})
	}
}
