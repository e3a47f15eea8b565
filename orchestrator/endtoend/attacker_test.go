package endtoend

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
)

// knowledge is the attacker's knowledge: everything about the cluster except its secrets.
type knowledge struct {
	// Files are secrets by name; an entry may be a pattern.
	Files map[string]string
	NATS  string
	// Object is the URL of another tenant's checkpoint, without a signature.
	Object, Bucket string
	API            string
	// Victim is another tenant's trial, with its directory; Worker runs both; Server serves them.
	Victim, Worker, Server int
	VictimDir              string
	// Results is the file for the attacker's results; Device is what its daemon holds.
	Results, Device string
}

// result is the result of one attempt.
type result struct {
	Name string
	// Got is what it gained; Why is why it failed.
	Got, Why string
}

// attempt is something that must be impossible for training code.
type attempt struct {
	name string
	try  func(k knowledge) (got string, err error)
}

// attack is training code that tries to access other tenants' data.
func attack() int {
	if os.Getenv("ATTACK") == "daemon" {
		return holdDevice(os.Getenv("DEVICE"))
	}
	var k knowledge
	if err := json.Unmarshal([]byte(os.Getenv("ATTACK")), &k); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	var results []result
	for _, a := range attempts() {
		r := result{Name: a.name}
		var err error
		if r.Got, err = a.try(k); err != nil {
			r.Why = err.Error()
		}
		results = append(results, r)
	}
	data, err := json.Marshal(results)
	if err == nil {
		err = os.WriteFile(k.Results, data, 0o644) //nolint:gosec // the test reads it
	}
	if err == nil {
		err = report(1, 1, os.Getenv("OUTBID_CHECKPOINT_OUT"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	return 0
}

func attempts() []attempt {
	return []attempt{
		{"read the files of secrets", readSecrets},
		{"find secrets in the environments of other processes", readEnvironments},
		{"find secrets on command lines", readCommandLines},
		{"find credentials in its own environment", readOwnEnvironment},
		{"read the memory of the worker and of another trial", readMemory},
		{"trace the worker, the server and another trial", trace},
		{"signal the worker, the server and another trial", kill},
		{"become root, or keep a capability", becomeRoot},
		{"read another trial's files", readVictim},
		{"write into another trial's directory", writeVictim},
		{"enter the worker's directories", listWorker},
		{"talk on another trial's session socket", dialSessions},
		{"connect to NATS, read the ledger, order programs", connectNATS},
		{"read another tenant's checkpoint", readObject},
		{"overwrite another tenant's checkpoint", writeObject},
		{"list the bucket", listBucket},
		{"ask the API without a token", askAPI},
		{"hand in files of the worker's as its own checkpoint", handIn},
		{"leave a daemon that holds the device", leaveDaemon},
	}
}

func readSecrets(k knowledge) (string, error) {
	var got []string
	var errs []error
	for name, pattern := range k.Files {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			paths = []string{pattern}
		}
		for _, path := range paths {
			if _, err := os.ReadFile(path); err != nil {
				errs = append(errs, err)
			} else {
				got = append(got, name+": "+path)
			}
		}
	}
	return strings.Join(got, "; "), errors.Join(errs...)
}

// others returns the processes of other users.
func others() []string {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	var found []string
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Getuid() {
			found = append(found, dir)
		}
	}
	return found
}

func readEnvironments(knowledge) (string, error) {
	var got []string
	refused := 0
	for _, dir := range others() {
		data, err := os.ReadFile(dir + "/environ")
		if err != nil {
			refused++
		} else if len(data) > 0 {
			got = append(got, dir)
		}
	}
	return strings.Join(got, " "), fmt.Errorf("%d were refused", refused)
}

// readOwnEnvironment returns the trial's environment without the test's variables.
func readOwnEnvironment(knowledge) (string, error) {
	var given []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "ATTACK=") {
			given = append(given, entry)
		}
	}
	return strings.Join(given, "\n"), nil
}

// readCommandLines returns all command lines; the test knows which would be secret.
func readCommandLines(knowledge) (string, error) {
	text := ""
	for _, dir := range others() {
		data, err := os.ReadFile(dir + "/cmdline")
		if err == nil {
			text += "\n" + strings.ReplaceAll(string(data), "\x00", " ")
		}
	}
	return text, nil
}

// targets returns the processes to attack.
func (k knowledge) targets() map[string]int {
	return map[string]int{"worker": k.Worker, "server": k.Server, "victim": k.Victim}
}

// each tries something on every target.
func (k knowledge) each(try func(pid int) error) (string, error) {
	var got []string
	var errs []error
	for name, pid := range k.targets() {
		if err := try(pid); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		} else {
			got = append(got, name)
		}
	}
	return strings.Join(got, " "), errors.Join(errs...)
}

func readMemory(k knowledge) (string, error) {
	return k.each(func(pid int) error {
		f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
		if err == nil {
			_ = f.Close()
		}
		return err
	})
}

func trace(k knowledge) (string, error) {
	return k.each(func(pid int) error { return syscall.PtraceAttach(pid) })
}

func kill(k knowledge) (string, error) {
	return k.each(func(pid int) error { return syscall.Kill(pid, 0) })
}

func becomeRoot(knowledge) (string, error) {
	err := syscall.Setuid(0)
	if err == nil {
		return "root", nil
	}
	status, readErr := os.ReadFile("/proc/self/status")
	if readErr != nil {
		return "", readErr
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		if strings.HasPrefix(name, "Cap") && name != "CapBnd" && strings.Trim(value, "0 \t\n") != "" {
			return strings.TrimSpace(line), nil
		}
	}
	return "", err
}

func readVictim(k knowledge) (string, error) {
	var errs []error
	for _, path := range []string{k.VictimDir + "/secret", fmt.Sprintf("/proc/%d/cwd/secret", k.Victim), fmt.Sprintf("/proc/%d/root%s/secret", k.Victim, k.VictimDir)} {
		data, err := os.ReadFile(path)
		if err == nil {
			return string(data), nil
		}
		errs = append(errs, err)
	}
	if names, err := os.ReadDir(k.VictimDir); err == nil {
		return fmt.Sprint(names), nil
	}
	return "", errors.Join(errs...)
}

// handIn submits files that the worker has open, or may read, under the name of checkpoints. The test checks in the
// store what it gets.
func handIn(k knowledge) (string, error) {
	paths := []string{"/proc/self/root/etc/shadow", "/proc/self/cwd", "/proc/self/environ", k.VictimDir + "/secret", k.Files["the worker's key"]}
	for fd := range 60 {
		paths = append(paths, fmt.Sprintf("/proc/self/fd/%d", fd), fmt.Sprintf("/proc/%d/fd/%d", k.Worker, fd))
	}
	f, err := os.OpenFile(os.Getenv("OUTBID_REPORT"), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for _, path := range paths {
		if _, err := fmt.Fprintf(f, "{\"step\": 1, \"loss\": 1, \"checkpoint\": %q}\n", path); err != nil {
			return "", err
		}
	}
	return "", errors.New("the worker looks at them later")
}

func writeVictim(k knowledge) (string, error) {
	path := k.VictimDir + "/planted"
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		return "", err
	}
	return path, nil
}

func listWorker(k knowledge) (string, error) {
	var got []string
	var errs []error
	for _, dir := range []string{k.Files["the worker's directory"], filepath.Dir(filepath.Dir(k.VictimDir)), filepath.Dir(k.VictimDir)} {
		if names, err := os.ReadDir(dir); err != nil {
			errs = append(errs, err)
		} else {
			got = append(got, fmt.Sprint(dir, names))
		}
	}
	return strings.Join(got, " "), errors.Join(errs...)
}

// dialSessions connects to every Unix socket that the kernel lists, and returns the sockets that keep the connection,
// except those of the system.
func dialSessions(k knowledge) (string, error) {
	text, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return "", err
	}
	var got []string
	var errs []error
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		path := fields[len(fields)-1]
		if strings.HasPrefix(path, "@outbid/") {
			continue // not a listening socket
		}
		if !strings.Contains(path, "outbid") && !strings.HasPrefix(path, filepath.Dir(filepath.Dir(k.VictimDir))) &&
			!strings.HasPrefix(path, k.Files["the worker's directory"]) {
			continue
		}
		conn, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
			_, err = conn.Read(make([]byte, 1))
			if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
				err = nil // it waits for a message
			}
			_ = conn.Close()
		}
		if err == nil {
			got = append(got, path)
		} else {
			errs = append(errs, err)
		}
	}
	return strings.Join(got, " "), errors.Join(errs...)
}

func connectNATS(k knowledge) (string, error) {
	insecure := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // an attacker does not verify the server
	options := map[string][]nats.Option{
		"nobody": {}, "a token": {nats.Token("outbid")}, "a user": {nats.UserInfo("outbid", "outbid")},
		"the worker": {nats.UserCredentials(filepath.Join(k.Files["the worker's key"]))},
	}
	var got []string
	var errs []error
	for name, opts := range options {
		nc, err := nats.Connect(k.NATS, append(opts, nats.Secure(insecure), nats.Timeout(5*time.Second))...)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		nc.Close()
		got = append(got, "as "+name)
	}
	return strings.Join(got, " "), errors.Join(errs...)
}

// request makes an HTTP request and returns the answer unless it is a rejection.
func request(method, url, body string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // as above
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		return "", errors.New(resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1000))
	return resp.Status + string(data), err
}

func readObject(k knowledge) (string, error) { return request(http.MethodGet, k.Object, "") }
func writeObject(k knowledge) (string, error) {
	return request(http.MethodPut, k.Object, "overwritten")
}
func listBucket(k knowledge) (string, error) { return request(http.MethodGet, k.Bucket, "") }
func askAPI(k knowledge) (string, error)     { return request(http.MethodGet, k.API+"/v1/sweeps", "") }

// leaveDaemon starts a process in another session that holds the device, and returns its id. The test checks whether it
// outlives the trial.
func leaveDaemon(k knowledge) (string, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "ATTACK=daemon", "DEVICE="+k.Device)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	for range 1000 {
		if data, err := os.ReadFile(k.Device); err == nil && len(data) > 0 {
			return string(data), nil
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // a training program without an event to wait for
	}
	return "", errors.New("the daemon did not begin")
}

// holdDevice detaches from its parent, and locks a file while it lives.
func holdDevice(path string) int {
	if os.Getenv("DAEMON") == "" {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "DAEMON=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if cmd.Start() != nil {
			return 1
		}
		return 0 // its child is an orphan now
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil || syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return 1
	}
	fmt.Fprint(f, os.Getpid())
	time.Sleep(time.Hour) //nolint:forbidigo // the attacker's daemon, which must be killed
	return 0
}
