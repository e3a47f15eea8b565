//go:build linux

package confine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/outbid-dev/outbid/worker/proctable"
	"github.com/outbid-dev/outbid/worker/trialfile"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(patientIn); dir != "" {
		os.Exit(bePatient(dir))
	}
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, user string) *Confiner {
	t.Helper()
	if user != None && CanSwitch() != nil {
		t.Skip("this takes root")
	}
	c, err := Open(t.Context(), Config{Dir: t.TempDir(), User: user})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func enter(t *testing.T, c *Confiner, l Limits) *Confinement {
	t.Helper()
	in, err := c.New(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	})
	return in
}

// run runs a shell script in a confinement and returns its lines once it prints "ready" or ends; wait waits for its
// end.
func run(t *testing.T, in *Confinement, script string) (lines []string, wait func() error) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Dir, cmd.Env = "/", in.Env([]string{"PATH=/usr/bin:/bin"})
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	started, end := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // it ends with the goroutine: its children get its death signal
		started <- in.Start(cmd, cmd.Start)
		<-end
	}()
	t.Cleanup(func() { close(end) })
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	scan := bufio.NewScanner(out)
	for scan.Scan() && scan.Text() != "ready" {
		lines = append(lines, scan.Text())
	}
	return lines, cmd.Wait
}

// outside returns a directory of the worker that trials see, because it is not below /tmp.
func outside(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "outbid-test-") //nolint:usetesting // the default is below /tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func gone(pid string) bool {
	n, err := strconv.Atoi(pid)
	_, lives := proctable.Get(n)
	return err != nil || !lives
}

// daemonize is a script that leaves a process in another session, forked twice.
const daemonize = `(setsid sh -c 'echo $$; exec sleep 600' &) ; sleep 0.2; echo ready`

// Processes that left their process group end with their trial, found by its control group, its user, or its mark.
func TestDaemonsEndWithTheirTrial(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(c *Confiner, in *Confinement){
		"control group": func(*Confiner, *Confinement) {},
		"mark":          func(_ *Confiner, in *Confinement) { in.group = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := open(t, None)
			if name == "control group" && c.tree == nil {
				t.Skip(c.whyNoTree)
			}
			in := enter(t, c, Limits{})
			if in.group != nil && name == "mark" {
				group := in.group
				t.Cleanup(func() {
					if err := group.remove(); err != nil {
						t.Error(err)
					}
				})
			}
			change(c, in)
			checkDaemon(t, in)
		})
	}
	t.Run("user", func(t *testing.T) {
		t.Parallel()
		c := open(t, Auto)
		tree := c.tree
		c.tree = nil
		in := enter(t, c, Limits{})
		c.tree = tree
		checkDaemon(t, in)
	})
}

func checkDaemon(t *testing.T, in *Confinement) {
	t.Helper()
	lines, wait := run(t, in, daemonize)
	if err := wait(); err != nil || len(lines) != 1 {
		t.Fatal(err, lines)
	}
	if gone(lines[0]) {
		t.Fatal("the daemon is not there, so there is nothing to test")
	}
	in.Left()
	if !gone(lines[0]) {
		t.Error("the daemon outlived its trial")
	}
}

// Two trials run as two users, who cannot read each other's or the worker's files, and cannot signal other processes.
func TestUsersAreKeptApart(t *testing.T) {
	t.Parallel()
	c := open(t, Auto)
	secret := filepath.Join(outside(t), "token")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, b := enter(t, c, Limits{}), enter(t, c, Limits{})
	script := fmt.Sprintf(`id -u; echo mine > $HOME/file; echo $TMPDIR
cat %s 2>&1; ls %s %s 2>&1; kill -9 %d 2>&1; cat /proc/%d/environ 2>&1 | tr '\0' ' '; ls %s 2>&1; grep -E 'NoNewPrivs|Cap(Prm|Eff|Amb)' /proc/self/status`,
		secret, b.Home(), c.cfg.Dir, os.Getpid(), os.Getpid(), c.Root())
	lines, wait := run(t, a, script)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(lines, "\n")
	if n := strings.Count(text, "ermission denied") + strings.Count(text, "not permitted") + strings.Count(text, "No such file"); n != 6 ||
		!strings.Contains(text, "NoNewPrivs:\t1") || strings.Count(text, ":\t0000000000000000") != 3 || lines[0] != fmt.Sprint(a.User().UID) || lines[1] != a.tmp() {
		t.Errorf("%d refusals, want 6:\n%s", n, text)
	}
	if a.User().UID == b.User().UID || a.User().UID < narrowFirst {
		t.Errorf("users %d and %d", a.User().UID, b.User().UID)
	}
	a.Left()
	home := a.Home()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(home); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the home is left: %v", err)
	}
	a.home, a.group, a.forget, a.user = "", nil, nil, nil // it is closed
}

// The worker accesses a trial's files with the trial's rights.
func TestFilesAreTakenWithTheRightsOfTheTrial(t *testing.T) {
	t.Parallel()
	c := open(t, Auto)
	in := enter(t, c, Limits{})
	secret := filepath.Join(outside(t), "token")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := func(name string) string { return filepath.Join(in.Home(), name) }
	for _, err := range []error{
		in.As(func() error { return os.WriteFile(path("good"), []byte("weights"), 0o600) }),
		in.As(func() error { return os.Symlink(secret, path("link")) }),
		in.As(func() error { return os.Symlink(filepath.Dir(secret), path("dir")) }),
		in.As(func() error { return syscall.Mkfifo(path("fifo"), 0o600) }),
		in.As(func() error { return os.Symlink("/proc/self/fd", path("fds")) }),
		in.As(func() error { return os.Symlink("/proc/self/root", path("root")) }),
		in.As(func() error { return os.WriteFile(path("large"), make([]byte, 101), 0o600) }),
		os.WriteFile(path("worker's"), nil, 0o644), //nolint:gosec // readable for others
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	to := filepath.Join(c.Root(), "taken")
	open, err := os.Open(secret) // as the worker has files of others open
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for _, name := range []string{
		"link", "dir/token", "fifo", "worker's", "../../../../" + secret, "dir", "missing", fmt.Sprintf("fds/%d", open.Fd()), "root" + path("good"),
	} {
		if err := in.TakeFile(t.Context(), in.Home(), in.Home()+"/"+name, to, 100); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if err := in.TakeFile(t.Context(), in.Home(), path("large"), to, 100); !errors.Is(err, trialfile.ErrTooLarge) {
		t.Errorf("a file that is too large: %v", err)
	}
	if err := in.TakeFile(t.Context(), in.Home(), path("good"), to, 100); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(to)
	if err != nil {
		t.Fatal(err)
	}
	if stat := info.Sys().(*syscall.Stat_t); int(stat.Uid) != os.Geteuid() || info.Mode().Perm() != TakenMode {
		t.Errorf("taken: %v of %d", info.Mode(), stat.Uid)
	}
	if _, err := os.Lstat(path("good")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if err := in.As(func() error { _, err := os.ReadFile(secret); return err }); !errors.Is(err, os.ErrPermission) {
		t.Errorf("the trial's rights: %v", err)
	}
	if _, err := os.ReadFile(secret); err != nil {
		t.Errorf("the worker's rights: %v", err)
	}
}

func needs(t *testing.T, c *Confiner, controller string) {
	t.Helper()
	if c.tree == nil || !strings.Contains(strings.Join(c.tree.controls(), " "), controller) {
		t.Skipf("this machine confines no %s", controller)
	}
}

func TestMemoryIsConfined(t *testing.T) {
	t.Parallel()
	c := open(t, None)
	needs(t, c, "memory")
	in := enter(t, c, Limits{MemoryBytes: 32 << 20})
	_, wait := run(t, in, `x=$(head -c 200000000 /dev/zero | tr '\0' x); echo ${#x}`)
	if err := wait(); err == nil {
		t.Error("it had its memory")
	}
	if got := in.Left(); got.MemoryBytes != 32<<20 {
		t.Errorf("out of memory: %+v", got)
	}
	_, wait = run(t, in, `true`)
	if err := wait(); err != nil {
		t.Error(err)
	}
	if got := in.Left(); got != (Exceeded{}) {
		t.Errorf("out of memory again: %+v", got)
	}
}

func TestCPUsAreConfined(t *testing.T) {
	t.Parallel()
	c := open(t, None)
	needs(t, c, "cpu")
	in := enter(t, c, Limits{CPUs: 0.2})
	began := time.Now()
	lines, wait := run(t, in, `i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; cut -d' ' -f14,15 /proc/$$/stat`)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	in.Left()
	var user, system float64 // hundredths of a second
	if _, err := fmt.Sscan(lines[0], &user, &system); err != nil {
		t.Fatal(err)
	}
	if took, used := time.Since(began), (user+system)/100; used > 0.3*took.Seconds()+0.05 {
		t.Errorf("%.2f s of CPU in %s: more than 0.2 CPUs", used, took)
	}
}

// The idle group is next to the groups of the worker and its trials, and only uses CPUs that they leave idle until
// its patience is over. A process that enters the group later does not change that for those inside.
func TestWhatStepsBackIsBehindAll(t *testing.T) {
	t.Parallel()
	c, err := Open(t.Context(), Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	behind := c.IdleGroup()
	if behind == "" {
		t.Skipf("this machine's control groups do not share out CPUs, or know no idle ones: %s", c.whyNoTree)
	}
	if !slices.ContainsFunc(c.tree.where(), func(dir string) bool { return filepath.Dir(dir) == filepath.Dir(behind) }) {
		t.Errorf("%s is not next to the trials' groups, %v", behind, c.tree.where())
	}
	is := func(want string) {
		t.Helper()
		if text, err := os.ReadFile(filepath.Join(behind, "cpu.idle")); err != nil || string(text) != want+"\n" {
			t.Errorf("cpu.idle is %q, %v; want %s", text, err, want)
		}
	}
	makeIdle(behind)
	is("1")
	if err := writeIn(behind, "cgroup.procs", strconv.Itoa(sleeper(t))); err != nil {
		t.Fatal(err)
	}
	if err := endIdle(behind); err != nil {
		t.Error(err)
	}
	is("0")
	makeIdle(behind)
	is("0")
	if err := killAll(func() ([]int, error) { return pidsIn(behind) }); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(behind); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", behind, err)
	}
}

// A killed worker leaves its groups, users and files; the next worker in its directory ends and removes them.
func TestTheNextWorkerRemovesWhatAKilledOneLeft(t *testing.T) {
	t.Parallel()
	c := open(t, Auto)
	in := enter(t, c, Limits{})
	lines, wait := run(t, in, daemonize)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := newRecord(dir, "")
	r.Root, r.Users, r.Groups = c.root, []uint32{in.user.UID}, c.record.Groups
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	next, err := Open(context.Background(), Config{Dir: dir, User: Auto})
	if err != nil {
		t.Fatal(err)
	}
	if !gone(lines[0]) {
		t.Error("the daemon is left")
	}
	for _, path := range append(r.Groups, r.Root) {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}

func TestWhatCannotBe(t *testing.T) {
	t.Parallel()
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if CanSwitch() != nil {
		t.Skip("this takes root")
	}
	for want, cfg := range map[string]Config{
		`user "nobody-at-all" of trials: there is no such user`: {User: "nobody-at-all"},
		`neither root nor the worker's user`:                    {User: "root"},
		`group "no-such-group" of trials`:                       {User: Auto, Groups: []string{"no-such-group"}},
		`does not let other users pass`:                         {User: Auto, TrialDir: closed},
	} {
		cfg.Dir = t.TempDir()
		_, err := Open(t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestMappedIDs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]bool{
		"         0          0 4294967295\n": {true, true},
		"0 100000 65536\n":                   {false, true},
		"0 1000 1\n":                         {false, false},
		"0 1000 1\n1 100000 65536\n":         {false, true},
		"":                                   {false, false},
		"rubbish\n":                          {false, false},
	} {
		path := filepath.Join(t.TempDir(), "uid_map")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := [2]bool{mapped(path, idRange{wideFirst, wideCount}), mapped(path, idRange{narrowFirst, narrowCount})}
		if got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// mountV2 returns the mount of control groups of version 2. If the machine uses only version 1, the kernel still has
// version 2 with the controllers that version 1 does not use: it is mounted for the test.
func mountV2(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
			return dir
		}
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "cgroup2", 0, ""); err != nil {
		t.Skipf("this machine lets a test mount no control groups: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// The controllers that version 1 uses are not listed as limits of version 2.
func TestVersionTwoWithoutControllers(t *testing.T) {
	t.Parallel()
	mount := mountV2(t)
	has, err := os.ReadFile(filepath.Join(mount, "cgroup.controllers"))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := openV2(mount, fmt.Sprint("outbid-bare-", os.Getpid()))
	if err != nil {
		t.Skip(err)
	}
	defer tree.close() //nolint:errcheck // the test has ended
	for _, limit := range []string{"cpu", "memory"} {
		offered := slices.Contains(strings.Fields(string(has)), limit)
		if slices.Contains(tree.controls(), limit) && !offered {
			t.Errorf("it claims to limit %s; the kernel offers %q", limit, has)
		}
	}
	g, err := tree.make("limited", Limits{CPUs: 1, MemoryBytes: 64 << 20})
	if err != nil {
		t.Fatalf("limits that cannot be had are left out, and the trial runs: %v", err)
	}
	if err := g.remove(); err != nil {
		t.Error(err)
	}
}

// Control groups of version 2 also end whole trials, even on machines that use version 1 otherwise.
func TestVersionTwo(t *testing.T) {
	t.Parallel()
	mount := mountV2(t)
	tree, err := openV2(mount, fmt.Sprint("outbid-test-", os.Getpid()))
	if err != nil {
		t.Skip(err)
	}
	c := open(t, None)
	if c.tree != nil {
		if err := c.tree.close(); err != nil {
			t.Error(err)
		}
	}
	c.tree = tree
	in := enter(t, c, Limits{})
	lines, wait := run(t, in, daemonize)
	if pids, err := in.group.pids(); err != nil || len(pids) == 0 {
		t.Errorf("in the group: %v, %v", pids, err)
	}
	if err := wait(); err != nil || len(lines) != 1 {
		t.Fatal(err, lines)
	}
	in.Left()
	if !gone(lines[0]) {
		t.Error("the daemon outlived its trial")
	}
}
