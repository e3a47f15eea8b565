package confine

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/outbid-dev/outbid/worker/proctable"
	"github.com/outbid-dev/outbid/worker/trialfile"
)

// markEnv marks the processes of one confinement: where there is no control group and no user of its own, what left
// its process group is found by it.
const markEnv = "OUTBID_CONFINED"

func newMark() string { return markEnv + "=" + rand.Text() }

// Confinement is what the processes of one trial run in. Its methods may be called concurrently; those of nil confine
// nothing.
type Confinement struct {
	limits Limits
	name   string
	mark   string
	log    *slog.Logger
	user   *User
	home   string
	group  group
	forget func() error
	spaces *spaces
	// gate is held by what starts or kills something inside; who holds all of it stops what is inside.
	gate sync.RWMutex

	mu      sync.Mutex
	running int
	since   time.Time
	ooms    uint64
	refused uint64
}

// User is who the processes run as; nil for the worker's own user.
func (in *Confinement) User() *User {
	if in == nil {
		return nil
	}
	return in.user
}

// Home is a directory of the user's own; "" if it is the worker's user.
func (in *Confinement) Home() string {
	if in == nil {
		return ""
	}
	return in.home
}

func (in *Confinement) tmp() string { return filepath.Join(in.home, "tmp") }

// Env puts what the processes find in their environment around what they are given otherwise, which wins.
func (in *Confinement) Env(given []string) []string {
	if in == nil {
		return given
	}
	var env []string
	if in.user != nil {
		env = []string{
			"HOME=" + in.home, "TMPDIR=" + in.tmp(), "USER=" + in.user.Name, "LOGNAME=" + in.user.Name,
			"XDG_CACHE_HOME=" + filepath.Join(in.home, ".cache"),
		}
	}
	return append(append(env, given...), in.mark)
}

// Escapes says whether a process inside that leaves its process group and cleans its environment would not be found:
// there is neither a control group nor a user of its own.
func (in *Confinement) Escapes() bool {
	return in != nil && in.group == nil && (in.user == nil || !in.user.own)
}

// Start starts a command inside by start, which is the command's own Start or does more. The caller's goroutine must be
// locked to its thread: the thread enters the control group for as long as it takes, and never again starts anything
// that gains privileges.
func (in *Confinement) Start(cmd *exec.Cmd, start func() error) error {
	if in == nil {
		return start()
	}
	if err := dropAmbient(); err != nil {
		return err
	}
	if in.user != nil {
		cmd.SysProcAttr.Credential = in.user.credential()
		if err := gainNothing(); err != nil {
			return err
		}
	}
	in.mu.Lock()
	if in.running == 0 {
		in.since = time.Now()
	}
	in.running++
	in.mu.Unlock()
	inside := func() error { return in.startInside(cmd, start) }
	var err error
	if in.group != nil {
		err = in.whileRunning(func() error { return in.group.start(cmd, inside) })
	} else {
		err = inside()
	}
	if err != nil {
		in.left()
		return in.explain(err, cmd)
	}
	return nil
}

// stuck is set once a thread could not leave what a trial runs in: nothing is started on it any more.
var stuck atomic.Bool //nolint:gochecknoglobals // a property of the process's threads

// startInside starts a command in the namespaces of the trial.
func (in *Confinement) startInside(cmd *exec.Cmd, start func() error) error {
	if stuck.Load() {
		return errors.New("this worker has to be restarted: a thread of it could not leave the namespaces of a trial")
	}
	back, err := in.spaces.enter()
	if err != nil {
		return err
	}
	err = start()
	if returned := back(); returned != nil {
		stuck.Store(true)
		if err == nil {
			_, _ = cmd.Process.Kill(), cmd.Wait()
		}
		return errors.Join(err, fmt.Errorf("leave the namespaces of a trial: %w", returned))
	}
	return err
}

func (in *Confinement) left() (last bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.running--
	return in.running == 0
}

// Left says that a process that was started is gone. With the last one everything else inside is killed. It returns
// the limits that its processes met since it was called last.
func (in *Confinement) Left() (met Exceeded) {
	if in == nil {
		return met
	}
	if in.group != nil {
		in.mu.Lock()
		if n := in.group.oomKills(); n > in.ooms && in.limits.MemoryBytes > 0 {
			in.ooms, met.MemoryBytes = n, in.limits.MemoryBytes
		}
		if n := in.group.refusals(); n > in.refused && in.limits.processes > 0 {
			in.refused, met.Processes = n, in.limits.processes
		}
		in.mu.Unlock()
	}
	if in.left() {
		if err := in.Kill(); err != nil {
			in.log.Warn("processes of a trial do not end", "error", err)
		}
	}
	return met
}

// Kill ends everything inside and waits until it is gone.
func (in *Confinement) Kill() error {
	if in == nil {
		return nil
	}
	in.mu.Lock()
	since := in.since
	in.mu.Unlock()
	if since.IsZero() {
		return nil // nothing was ever started
	}
	if in.group != nil {
		if err := in.whileRunning(in.group.kill); err != nil {
			return fmt.Errorf("kill a control group: %w", err)
		}
	}
	switch {
	case in.user != nil && in.user.own:
		return killAll(func() ([]int, error) { return proctable.OfUser(in.user.UID) })
	case in.group == nil:
		return killAll(func() ([]int, error) { return marked(in.mark, since) })
	}
	return nil
}

// Close kills everything inside, removes the files of its user, and gives back the user and the control group.
func (in *Confinement) Close() error {
	if in == nil {
		return nil
	}
	err := in.Kill()
	err = errors.Join(err, in.spaces.close())
	if in.group != nil {
		err = errors.Join(err, in.group.remove())
	}
	if in.home != "" {
		err = errors.Join(err, in.Remove(in.home))
	}
	if in.user != nil && in.user.own {
		err = errors.Join(err, sweepShared(in.user.UID), sweepIPC(in.user.UID))
	}
	if in.forget != nil {
		err = errors.Join(err, in.forget())
	}
	if in.user != nil {
		err = errors.Join(err, in.user.release())
	}
	return err
}

// Own gives a directory, with all that is in it, to the user. Nobody else may be able to write there.
func (in *Confinement) Own(dir string) error {
	u := in.User()
	if u == nil {
		return nil
	}
	var all []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	// From the inside to the outside: what is the user's already has nothing of the worker's in it.
	for i := len(all) - 1; i >= 0 && err == nil; i-- {
		err = os.Lchown(all[i], int(u.UID), int(u.GID))
	}
	if err != nil {
		return fmt.Errorf("give files to the user of a trial: %w", err)
	}
	return nil
}

// Remove removes a directory of the user's.
func (in *Confinement) Remove(dir string) error {
	err := in.As(func() error { return trialfile.Empty(dir) })
	if removed := trialfile.Remove(dir); removed != nil {
		return errors.Join(err, removed)
	}
	return nil
}

// sweepShared removes what a user left in directories that everybody may write to.
func sweepShared(uid uint32) error {
	var errs []error
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // not there
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				continue // gone
			}
			if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid == uid {
				errs = append(errs, trialfile.Remove(filepath.Join(dir, e.Name())))
			}
		}
	}
	return errors.Join(errs...)
}

// explain says why a command cannot be started as another user.
func (in *Confinement) explain(err error, cmd *exec.Cmd) error {
	hidden := func(path string) bool {
		return in.spaces != nil && strings.HasPrefix(path, "/tmp/") && errors.Is(err, os.ErrNotExist)
	}
	switch {
	case in.user == nil:
		return err
	case hidden(cmd.Dir) || hidden(cmd.Path):
		return fmt.Errorf("%w: each trial has a /tmp of its own and does not see what is below this machine's; move its program and its working "+
			"directory elsewhere, such as /var/tmp or /opt", err)
	case !errors.Is(err, os.ErrPermission):
		return err
	}
	return in.explainClosed(err, cmd)
}

// explainClosed says what is closed to the user of a trial.
func (in *Confinement) explainClosed(err error, cmd *exec.Cmd) error {
	if dir := cmd.Dir; dir != "" && !in.user.Reaches(dir) {
		return fmt.Errorf("the working directory %s is closed to the user that trials run as (%s): chmod o+rx it and what "+
			"is above it, or name another", dir, in.user)
	}
	path := cmd.Path
	if at := new(fs.PathError); errors.As(err, &at) {
		path = at.Path
	}
	return fmt.Errorf("%s is closed to the user that trials run as (%s): chmod o+rx it and what is above it, or install "+
		"it where everybody may read, such as /usr/local or /opt", path, in.user)
}

// String names a user for people.
func (u *User) String() string {
	return u.Name + ", user id " + strconv.Itoa(int(u.UID))
}
