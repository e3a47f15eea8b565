package deploy

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// confined is the part of a compose file with the permissions of a service.
type confined struct {
	Services map[string]struct {
		User        string            `yaml:"user"`
		Privileged  bool              `yaml:"privileged"`
		ReadOnly    bool              `yaml:"read_only"`
		CapDrop     []string          `yaml:"cap_drop"`
		CapAdd      []string          `yaml:"cap_add"`
		SecurityOpt []string          `yaml:"security_opt"`
		Environment map[string]string `yaml:"environment"`
		Command     []string          `yaml:"command"`
		Entrypoint  []string          `yaml:"entrypoint"`
		Volumes     []string          `yaml:"volumes"`
		PidMode     string            `yaml:"pid"`
		NetworkMode string            `yaml:"network_mode"`
	} `yaml:"services"`
}

// sees lists the services that may see each volume of secrets, and whether they may write to it. setup, which creates
// all volumes, is not listed.
var sees = map[string]map[string]bool{ //nolint:gochecknoglobals // a table
	"authority":     {},
	"secrets-nats":  {"nats": false},
	"secrets-minio": {"minio": false},
	"secrets-serve": {"serve": true},
	"secrets-admin": {"invite": false},
	"public":        {"serve": false, "invite": false, "worker": false},
	"invites":       {"invite": true, "worker": true},
	"nats":          {"nats": true},
	"minio":         {"minio": true},
	"outbid":        {"serve": true},
}

func TestEachServiceSeesItsOwnSecrets(t *testing.T) {
	t.Parallel()
	var c confined
	readYAML(t, "compose/compose.yaml", &c)
	var all compose
	readYAML(t, "compose/compose.yaml", &all)
	for volume := range all.Volumes {
		if _, ok := sees[volume]; !ok {
			t.Errorf("the table does not list the volume %q", volume)
		}
	}
	for name, s := range c.Services {
		if name == "setup" {
			continue
		}
		for _, mount := range s.Volumes {
			parts := strings.Split(mount, ":")
			readOnly := len(parts) == 3 && parts[2] == "ro"
			if strings.HasPrefix(parts[0], ".") {
				if !readOnly {
					t.Errorf("%s may write %s", name, parts[0])
				}
				continue
			}
			writes, ok := sees[parts[0]][name]
			if !ok || !writes && !readOnly {
				t.Errorf("%s mounts %q; the table says that it may see it: %v, write it: %v", name, mount, ok, writes)
			}
		}
	}
	for volume, services := range sees {
		for service := range services {
			mounts := strings.Join(c.Services[service].Volumes, "\n")
			if !regexp.MustCompile(`(?m)^` + volume + `:`).MatchString(mounts) {
				t.Errorf("%s does not mount %s", service, volume)
			}
		}
	}
}

func TestServicesAreConfined(t *testing.T) {
	t.Parallel()
	var c confined
	readYAML(t, "compose/compose.yaml", &c)
	users := map[string]string{}
	for name, s := range c.Services {
		if s.Privileged || s.PidMode != "" || s.NetworkMode != "" && s.NetworkMode != "none" {
			t.Errorf("%s shares the host's processes or network, or is privileged", name)
		}
		if name == "setup" {
			continue
		}
		if !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s keeps capabilities (%v) or may gain new ones (%v)", name, s.CapDrop, s.SecurityOpt)
		}
		if !s.ReadOnly && name != "minio" {
			t.Errorf("the root of %s can be written", name)
		}
		var want []string
		if name == "worker" {
			want = []string{"SETUID", "SETGID", "CHOWN", "KILL"}
		}
		if !slices.Equal(s.CapAdd, want) {
			t.Errorf("%s has the capabilities %v, want %v", name, s.CapAdd, want)
		}
		if name == "worker" || name == "invite" {
			continue // root in its container, without the rights
		}
		if s.User == "" || s.User == "root" || strings.HasPrefix(s.User, "0") || users[s.User] != "" {
			t.Errorf("%s runs as %q, like %q", name, s.User, users[s.User])
		}
		users[s.User] = name
	}
	worker := c.Services["worker"]
	said := strings.Join(slices.Concat(worker.Command, worker.Entrypoint, slices.Collect(maps.Keys(worker.Environment)),
		slices.Collect(maps.Values(worker.Environment))), "\n")
	for _, word := range []string{"AWS_", "MINIO_", "PASSWORD", "--token", "--store", "--keys", "admin"} {
		if strings.Contains(said, word) {
			t.Errorf("the worker's settings mention %s", word)
		}
	}
	if !strings.Contains(said, "--trial-user=auto") {
		t.Error("trials run as the worker's own user")
	}
}

// build builds the program once for all tests.
var build = sync.OnceValues(func() (string, error) { //nolint:gochecknoglobals // one build for all tests
	dir, err := os.MkdirTemp("", "outbid-deploy-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "outbid")
	out, err := exec.Command("go", "build", "-o", path, "..").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
})

// outbid returns the program named in the environment, or one built here.
func outbid(t *testing.T) string {
	t.Helper()
	_ = os.Getenv("OUTBID_TEST_PROGRAMS") // so that go test uses no cached result of another build
	if path := os.Getenv("OUTBID_BIN"); path != "" {
		path, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// setUp runs setup.sh twice, like a restart, and returns its directory.
func setUp(t *testing.T) string {
	t.Helper()
	bin, dir := t.TempDir(), t.TempDir()
	if err := os.Symlink(outbid(t), filepath.Join(bin, "outbid")); err != nil {
		t.Fatal(err)
	}
	before := ""
	for range 2 {
		cmd := exec.Command("/bin/sh", "compose/setup.sh", dir, "nats/nats.conf")
		cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("setup.sh: %v\n%s", err, out)
		}
		now := read(t, dir, "admin/admin.token") + read(t, dir, "minio/password") + read(t, dir, "serve/tokens") + read(t, dir, "serve/key.pem")
		if before != "" && now != before {
			t.Error("a second run made other secrets")
		}
		before = now
	}
	return dir
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// filesOf lists the files below a directory, and fails for files that others can read unless they are public.
func filesOf(t *testing.T, root, part string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(filepath.Join(root, part), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 && part != "public" {
			t.Errorf("others reach %s: mode %v", path, info.Mode())
		}
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			files[strings.TrimPrefix(path, root+"/")] = string(data)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestSetupGivesEachPartItsOwn runs setup.sh and searches for every secret in every part.
func TestSetupGivesEachPartItsOwn(t *testing.T) {
	t.Parallel()
	dir := setUp(t)
	body := func(pem string) string { return strings.Join(strings.Split(pem, "\n")[1:2], "") }
	secrets := map[string]string{
		"the administrator's token": read(t, dir, "admin/admin.token"),
		"MinIO's password":          read(t, dir, "minio/password"),
		"the authority's key":       body(read(t, dir, "authority/ca-key.pem")),
		"the API's key":             body(read(t, dir, "serve/key.pem")),
		"serve's own token":         read(t, dir, "serve/health.token"),
	}
	keys := filesOf(t, dir, "serve/keys")
	for name, text := range keys {
		if strings.HasSuffix(name, ".nk") {
			secrets["the cluster's key "+name] = strings.TrimSpace(text)
		}
	}
	if len(secrets) < 8 {
		t.Errorf("the cluster has no keys: %v", slices.Collect(maps.Keys(keys)))
	}
	may := map[string][]string{
		"the administrator's token": {"admin"}, "MinIO's password": {"minio", "serve"}, "the authority's key": {"authority"},
		"the API's key": {"authority", "serve"}, "serve's own token": {"serve"},
	}
	for _, part := range []string{"authority", "nats", "minio", "serve", "admin", "public", "invites"} {
		for path, text := range filesOf(t, dir, part) {
			for what, secret := range secrets {
				allowed := may[what]
				if allowed == nil {
					allowed = []string{"serve"}
				}
				if len(secret) < 16 {
					t.Fatalf("%s is %q", what, secret)
				}
				// serve has the list of the API's tokens.
				if strings.Contains(text, secret) && !slices.Contains(allowed, part) && path != "serve/tokens" {
					t.Errorf("%s holds %s", path, what)
				}
			}
		}
	}
	for part, want := range map[string][]string{
		"public": {"public/ca.pem"}, "admin": {"admin/admin.token"}, "invites": nil, "minio": {"minio/password", "minio/user"},
	} {
		if got := slices.Sorted(maps.Keys(filesOf(t, dir, part))); !slices.Equal(got, want) {
			t.Errorf("%s holds %v, want %v", part, got, want)
		}
	}
}

// settings returns the settings of a unit by name; repeated ones are joined.
func settings(t *testing.T, unit string) map[string]string {
	t.Helper()
	text := strings.ReplaceAll(read(t, "systemd", unit), "\\\n", " ")
	found := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			found[name] = strings.TrimSpace(found[name] + " " + value)
		}
	}
	return found
}

func TestUnitsKeepSecretsApart(t *testing.T) {
	t.Parallel()
	users := map[string]string{}
	for _, unit := range []string{"nats.service", "minio.service", "outbid-serve.service", "outbid-worker@.service"} {
		s := settings(t, unit)
		if other := users[s["User"]]; other != "" || s["User"] == "" || s["User"] == "root" || s["User"] != s["Group"] {
			t.Errorf("%s runs as %s:%s, as does %q", unit, s["User"], s["Group"], other)
		}
		users[s["User"]] = unit
		if unit != "outbid-worker@.service" && s["CapabilityBoundingSet"] != "" {
			t.Errorf("%s may have the capabilities %s", unit, s["CapabilityBoundingSet"])
		}
		if s["StateDirectoryMode"] != "0700" || s["UMask"] != "0077" || s["NoNewPrivileges"] != "yes" {
			t.Errorf("%s: others may read what it keeps, or it may gain rights", unit)
		}
	}
	worker := settings(t, "outbid-worker@.service")
	const four = "CAP_SETUID CAP_SETGID CAP_CHOWN CAP_KILL"
	for name, want := range map[string]string{
		"AmbientCapabilities": four, "CapabilityBoundingSet": four, "EnvironmentFile": "/etc/outbid/worker.env", "LoadCredential": "",
	} {
		if worker[name] != want {
			t.Errorf("the worker's %s is %q, want %q", name, worker[name], want)
		}
	}
	if worker["Delegate"] == "" || worker["ProtectControlGroups"] == "yes" {
		t.Error("the worker may make no control groups for its trials")
	}
	for _, dir := range []string{"/etc/outbid", "/var/lib/outbid", "/var/lib/nats", "/var/lib/minio"} {
		if !slices.Contains(strings.Fields(worker["InaccessiblePaths"]), "-"+dir) {
			t.Errorf("the worker and its trials see %s", dir)
		}
	}
	for _, word := range []string{"--token-file", "--store", "--keys", "OUTBID_STORE"} {
		if strings.Contains(worker["ExecStart"], word) {
			t.Errorf("the worker is started with %s", word)
		}
	}
	if !strings.Contains(worker["ExecStart"], "--trial-user auto") {
		t.Error("trials run as the worker's own user")
	}
	for line := range strings.Lines(read(t, "systemd", "worker.env")) {
		if regexp.MustCompile(`^[^#]*(KEY|PASSWORD|SECRET|TOKEN|AWS|MINIO|CHANGE-ME)`).MatchString(line) {
			t.Errorf("worker.env holds a secret: %s", line)
		}
	}
}

func TestImagesHaveUsersOfTheirOwn(t *testing.T) {
	t.Parallel()
	text := read(t, ".", "Dockerfile")
	stages := strings.Split(text, "\nFROM ")
	if len(stages) != 3+1 && len(stages) != 3 {
		t.Fatalf("%d stages", len(stages))
	}
	orchestrator, worker := stages[len(stages)-2], stages[len(stages)-1]
	if !strings.Contains(orchestrator, "\nUSER outbid\n") {
		t.Error("the orchestrator's image runs as root")
	}
	if strings.Contains(worker, "--uid 10001") || !strings.Contains(worker, "outbid-worker") {
		t.Error("the worker has the orchestrator's user")
	}
	for _, stage := range stages {
		if regexp.MustCompile(`(?i)(password|token|secret)=`).MatchString(stage) {
			t.Error("a secret is baked into an image")
		}
	}
}
