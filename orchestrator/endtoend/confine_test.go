package endtoend

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// shell returns a sweep of a shell script, with the variable $DIR.
func shell(name, dir, text string, trials int32) *outbidv1.SweepSpec {
	spec := job{name: name, tuner: random(0), trials: trials}.bare()
	spec.Workload = &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{
		Command: []string{"sh", "-ec", text}, Env: map[string]string{"DIR": dir}, Grace: "2s",
	}}
	return spec
}

// reportOne ends a script with a successful report.
const reportOne = `; echo '{{"step":1,"loss":1}}' >> "$OUTBID_REPORT"`

// TestTrialsSeeNothingOfTheServersEnvironmentThatTheyWereNotGiven checks that the operator's environment is visible
// only to the server and its workers, except for variables that are passed on by name.
func TestTrialsSeeNothingOfTheServersEnvironmentThatTheyWereNotGiven(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secrets := []string{"MINIO_ROOT_PASSWORD=planted1", "AWS_SECRET_ACCESS_KEY=planted2", "OUTBID_TOKEN=planted3", "HF_HOME=/models"}
	s := serveIn(t, dir, nil, secrets, "up", "--devices", "cpu:1", "--pass-env", "HF_*")
	s.mustDone(s.submit(shell("look", dir, `env > "$DIR/seen"`+reportOne, 1)))
	text, err := os.ReadFile(filepath.Join(dir, "seen"))
	if err != nil {
		t.Fatal(err)
	}
	seen := string(text)
	if strings.Contains(seen, "planted") || !strings.Contains(seen, "HF_HOME=/models\n") || !strings.Contains(seen, "PATH=") {
		t.Errorf("the trial saw:\n%s", seen)
	}
	if out, code := tool(t, dir, "up", "--pass-env", "OUTBID_TOKEN"); code != 2 || strings.Count(strings.TrimSpace(out), "\n") != 0 ||
		!strings.Contains(out, "never passed on") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// TestTenantsTrialsReachNothingOfTheWorkers checks that a worker of a server with tokens runs each trial as a separate
// user, which can read neither the worker's nor other trials' files and leaves nothing behind. A worker that may not
// switch users fails with one line.
func TestTenantsTrialsReachNothingOfTheWorkers(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/var/tmp", "outbid-tenants-") //nolint:usetesting // trials cannot see directories below /tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	made, code := tool(t, dir, "token", "new", "--file", "tokens", "--name", "ada", "--tenant", "vision")
	if code != 0 {
		t.Fatal(made)
	}
	token := regexp.MustCompile(`outbid_\S+`).FindString(made)
	s := serveData(t, dir, "ready", "serve", "--nats-listen", "127.0.0.1:0", "--data", "data", "--tokens", "tokens")
	worker := []string{"worker", "--nats", s.Info.NATS, "--keys", s.Info.Keys, "--devices", "cpu:2", "--name", "n1", "--dir", "work"}
	out, code := tool(t, dir, append(worker[:len(worker):len(worker)], "--trial-user", "none")...)
	if _, last, _ := strings.Cut(out, "outbid: --trial-user: this server takes sweeps"); code != 2 || strings.Count(last, "\n") != 1 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if os.Geteuid() != 0 {
		out, code := tool(t, dir, worker...)
		if code != 2 || !strings.Contains(out, "--trust-trials") {
			t.Errorf("exit code %d:\n%s", code, out)
		}
		return
	}
	start(t, dir, worker...)
	look := fmt.Sprintf(`{{ id -u; ls %[1]s; ls %[2]s %[2]s/work; tr '\0' ' ' < /proc/$PPID/environ; tr '\0' ' ' < /proc/$PPID/cmdline; kill $PPID; }} 2>&1 || true
setsid sleep 600 &
ls "$HOME" > $HOME/ok`, s.Info.Keys+"/*", dir)
	sweep, err := protojson.Marshal(shell("look", "/", look+reportOne, 2))
	if err != nil {
		t.Fatal(err)
	}
	as := []string{"--server", s.Info.API, "--token", token}
	as = as[:len(as):len(as)]
	if text, code := tool(t, dir, append(as, "run", writeFile(t, string(sweep)))...); code != 0 {
		t.Fatal(text)
	}
	var users []string
	for trial := range 2 {
		text, code := tool(t, dir, append(as, "logs", fmt.Sprint("look/", trial))...)
		if code != 0 {
			t.Fatal(text)
		}
		if n := strings.Count(text, "ermission denied") + strings.Count(text, "not permitted"); n < 4 {
			t.Errorf("only %d refusals:\n%s", n, text)
		}
		users = append(users, regexp.MustCompile(`\d{5,}`).FindString(text))
	}
	if users[0] == users[1] || users[0] == "" {
		t.Errorf("the trials ran as %q", users)
	}
	for _, user := range users {
		if left, err := exec.Command("pgrep", "-r", "D,R,S,T", "-u", user).Output(); err == nil {
			t.Errorf("processes of %s are left: %s", user, left)
		}
	}
}

// TestServersOfOneMachineShareItsDevices checks that a trial of a second server waits for the first server's trial,
// that the doctor names the process, and that the trial continues when that process ends in any way. A separate network
// namespace simulates a machine whose devices no other test uses.
func TestServersOfOneMachineShareItsDevices(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("unshare", "-n", "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Skipf("this machine does not let a test create a network namespace: %v: %s", err, out)
	}
	one, two := t.TempDir(), t.TempDir()
	first := serveIn(t, one, []string{"unshare", "-n", "sh", "-c", `ip link set lo up && exec "$@"`, "sh"}, nil, "up")
	inside := []string{"nsenter", "-t", fmt.Sprint(first.Info.PID), "-n"}
	self, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	keep := exec.Command("nsenter", "-t", fmt.Sprint(first.Info.PID), "-n", "sleep", "600") // keeps the namespace after the first server
	if err := keep.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = keep.Process.Kill(); _ = keep.Wait() })
	ask := func(s *server, args ...string) string {
		args = append([]string{"-t", fmt.Sprint(keep.Process.Pid), "-n", self, "--server", s.Info.API}, args...)
		out, _ := exec.Command("nsenter", args...).CombinedOutput() // doctor fails if it finds a problem
		return string(out)
	}
	submit := func(s *server, spec *outbidv1.SweepSpec) {
		t.Helper()
		sweep, err := protojson.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		if out := ask(s, "submit", writeFile(t, string(sweep))); !strings.Contains(out, spec.GetName()) {
			t.Fatal(out)
		}
	}
	in := func(s *server, sweep, state string) func() bool {
		return func() bool { return strings.Contains(ask(s, "show", sweep, "-o", "json"), fmt.Sprintf("%q", state)) }
	}
	second := serveIn(t, two, inside, nil, "up")
	done := filepath.Join(t.TempDir(), "done")
	submit(first, shell("long", done, `touch "$DIR"; sleep 600`, int32(runtime.NumCPU())))
	poll(t, "a trial of the first", func() bool { _, err := os.Stat(done); return err == nil })
	submit(second, shell("short", two, "true"+reportOne, 2))
	held := fmt.Sprint("is held by process ", first.Info.PID)
	poll(t, "doctor to say for whom it waits", func() bool { return strings.Contains(ask(second, "doctor"), held) })
	mustReport(t, "another server's trial holds a device", ask(second, "doctor", "-o", "json"), 1)
	if said := ask(second, "show", "short"); !strings.Contains(said, fmt.Sprintf("which a trial of process %d (%s", first.Info.PID, one)) {
		t.Errorf("the sweep does not name the process that it waits for:\n%s", said)
	}
	first.kill()
	poll(t, "the second's sweep", in(second, "short", "done"))
	if said := ask(second, "doctor"); strings.Contains(said, "is held by") {
		t.Errorf("doctor still reports a wait:\n%s", said)
	}
}
