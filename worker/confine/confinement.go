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

// markEnv marks the processes of one confinement. Processes that left their process group are found by it if there is
// neither a control group nor a user for the trial.
const markEnv = "OUTBID_CONFINED"

func newMark() string { return markEnv + "=" + rand.Text() }

// Confinement holds the processes of one trial. Its methods may be called concurrently; a nil Confinement confines
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
	// gate is read-locked while processes inside are started or killed, and locked while they are stopped or
	// continued.
	gate sync.RWMutex

	mu      sync.Mutex
	running int
	since   time.Time
	ooms    uint64
	refused uint64
}

// User returns the user of the processes; nil for the worker's own user.
func (in *Confinement) User() *User {
	if in == nil {
		return nil
	}
	return in.user
}

// Home returns the user's home directory; "" for the worker's own user.
func (in *Confinement) Home() string {
	if in == nil {
		return ""
	}
	return in.home
}

func (in *Confinement) tmp() string { return filepath.Join(in.home, "tmp") }

// Env returns the environment of the processes: variables for the user's home, then the given ones, which override
// them.
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

// Escapes reports whether a process that leaves its process group and clears its environment could not be found,
// because the trial has neither a control group nor its own user.
func (in *Confinement) Escapes() bool {
	return in != nil && in.group == nil && (in.user == nil || !in.user.own)
}

// Start starts a command in the confinement by calling start, which is the command's Start method or a wrapper. The
// caller's goroutine must be locked to its thread: the thread enters the control group meanwhile, and cannot start
// programs that gain privileges afterwards.
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
		in.processEnded()
		return in.explain(err, cmd)
	}
	return nil
}

// stuck is set once a thread could not leave the namespaces of a trial. Then no process is started any more.
var stuck atomic.Bool //nolint:gochecknoglobals // a property of the process's threads

// startInside starts a command in the namespaces of the trial.
func (in *Confinement) startInside(cmd *exec.Cmd, start func() error) error {
	if stuck.Load() {
		return errors.New("restart this worker: one of its threads could not leave the namespaces of a trial")
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

func (in *Confinement) processEnded() (last bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.running--
	return in.running == 0
}

// Left records that a started process is gone. After the last one, everything else inside is killed. It returns the
// limits that the processes have reached since the last call.
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
	if in.processEnded() {
		if err := in.Kill(); err != nil {
			in.log.Warn("cannot end processes of a trial", "error", err)
		}
	}
	return met
}

// Kill kills everything inside and waits until it is gone.
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

// Close kills everything inside, removes the files of its user, and releases the user and the control group.
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

// Own gives a directory with all its content to the user. No other user may be able to write there.
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
	// From the innermost to the outermost: what the user owns already does not contain files of the worker.
	for i := len(all) - 1; i >= 0 && err == nil; i-- {
		err = os.Lchown(all[i], int(u.UID), int(u.GID))
	}
	if err != nil {
		return fmt.Errorf("give files to the user of a trial: %w", err)
	}
	return nil
}

// Remove removes a directory of the user.
func (in *Confinement) Remove(dir string) error {
	err := in.As(func() error { return trialfile.Empty(dir) })
	// In a container, root may lack CAP_DAC_OVERRIDE and so may not open the user's directory, but can remove it if it is empty.
	if os.Remove(dir) == nil {
		return nil
	}
	if removed := trialfile.Remove(dir); removed != nil {
		return errors.Join(err, removed)
	}
	return nil
}

// sweepShared removes a user's files from directories that every user may write to.
func sweepShared(uid uint32) error {
	var errs []error
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // does not exist
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

// explain adds to an error why a command cannot be started as another user.
func (in *Confinement) explain(err error, cmd *exec.Cmd) error {
	hidden := func(path string) bool {
		return in.spaces != nil && strings.HasPrefix(path, "/tmp/") && errors.Is(err, os.ErrNotExist)
	}
	switch {
	case in.user == nil:
		return err
	case hidden(cmd.Dir) || hidden(cmd.Path):
		return fmt.Errorf("%w: each trial has its own /tmp and does not see files in the machine's /tmp; move its program and its working "+
			"directory elsewhere, such as /var/tmp or /opt", err)
	case !errors.Is(err, os.ErrPermission):
		return err
	}
	return in.explainClosed(err, cmd)
}

// explainClosed says which file the user of a trial cannot access.
func (in *Confinement) explainClosed(err error, cmd *exec.Cmd) error {
	if dir := cmd.Dir; dir != "" && !in.user.Reaches(dir) {
		return fmt.Errorf("the working directory %s is not accessible to the user that trials run as (%s): chmod o+rx it and the "+
			"directories above it, or choose another", dir, in.user)
	}
	path := cmd.Path
	if at := new(fs.PathError); errors.As(err, &at) {
		path = at.Path
	}
	return fmt.Errorf("%s is not accessible to the user that trials run as (%s): chmod o+rx it and the directories above it, or install "+
		"it where every user can read it, such as /usr/local or /opt", path, in.user)
}

// String returns the user's name and id.
func (u *User) String() string {
	return u.Name + ", user id " + strconv.Itoa(int(u.UID))
}
