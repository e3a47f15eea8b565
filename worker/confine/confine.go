// Package confine isolates training code: each trial gets its own user if the worker may switch users, its own
// control group if the worker may create one, and its own namespaces. It ends every process that a trial left behind
// and removes the trial's files. Warnings lists what cannot be confined on this machine.
package confine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
)

// Special values of Config.User.
const (
	// None runs training code as the worker's own user.
	None = "none"
	// Auto gives each running trial its own user id, which no account has.
	Auto = "auto"
)

// Config configures the confinement of training code.
type Config struct {
	// Dir is the worker's own directory.
	Dir string
	// Worker identifies this start of the worker for EndTrials.
	Worker string
	// User is None, Auto, or the name of a user; empty means None.
	User string
	// Groups are names of groups that training code keeps, such as video, because devices need them.
	Groups []string
	// TrialDir is the parent of the directory with the files of trials that run as other users. Every user must be
	// able to pass through it. Empty means /var/tmp.
	TrialDir string
	// NoGroups disables control groups, as on a machine without them.
	NoGroups bool
	// NoSpaces disables namespaces except those that Network needs, as if the worker could not create them.
	NoSpaces bool
	// Network is NetworkHost or NetworkNone; empty means NetworkHost.
	Network string
	// Processes limits the processes and threads of one trial, and Files the open files of each of its processes; 0
	// means no limit.
	Processes, Files int64
	Logger           *slog.Logger
}

// Limits are the resources of a trial; 0 means no limit.
type Limits struct {
	CPUs        float64
	MemoryBytes int64
	// processes is set by the Confiner.
	processes int64
}

// Confiner creates the confinements of one worker. Close removes what it created.
type Confiner struct {
	cfg   Config
	users userSource
	tree  tree // nil without control groups
	// whyNoTree is why the worker has no control groups, or "".
	whyNoTree string
	// idleGroup is the idle control group, or "" without one.
	idleGroup string
	root      string // directory of trials' files if they run as other users; files removes it
	files     *root
	record    *record
	// whyShared is the reason why trials share /tmp, /dev/shm and System V IPC, or "" if they do not.
	whyShared string

	mu   sync.Mutex
	made int
}

// Open finds out what the machine supports, and ends what an earlier worker left in the same directory. It also ends
// the trials of killed workers with other directories, and removes their control groups and files. Only the worker
// that holds the directory's lock may call it.
func Open(ctx context.Context, cfg Config) (*Confiner, error) {
	cfg.User = cmp.Or(cfg.User, None)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := endLeftovers(cfg.Dir, cfg.Logger); err != nil {
		return nil, err
	}
	users, err := openUsers(ctx, cfg)
	if err != nil {
		return nil, err
	}
	c := &Confiner{cfg: cfg, users: users, record: newRecord(cfg.Dir, cfg.Worker)}
	err = errors.New("they are turned off")
	if !cfg.NoGroups {
		c.tree, err = openTree(filepath.Join(cfg.Dir, "cgroup"))
	}
	if err != nil {
		c.whyNoTree = err.Error()
	}
	if c.tree != nil {
		if c.idleGroup, err = c.tree.makeIdleGroup(); err != nil {
			return nil, errors.Join(fmt.Errorf("create the idle control group: %w", err), c.Close())
		}
	}
	if c.Switches() {
		if c.files, err = makeRoot(cfg.TrialDir); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.root = c.files.path
	}
	c.record.Root = c.root
	if err := c.openSpaces(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if c.tree != nil {
		c.record.Groups = c.tree.where()
		removeOrphans(c.record.Groups, cfg.Logger)
		if c.Switches() {
			removeDeadRoots(cfg.TrialDir, cfg.Logger)
		}
	}
	if c.idleGroup != "" {
		c.record.Groups = append(slices.Clone(c.record.Groups), c.idleGroup)
	}
	return c, c.record.save()
}

// openSpaces finds out whether the worker can create namespaces.
func (c *Confiner) openSpaces() error {
	if c.cfg.Network == NetworkNone {
		if err := trySpaces(wants{network: true}); err != nil {
			return fmt.Errorf("trials without a network need root or the capability CAP_SYS_ADMIN: %w", err)
		}
	}
	err := errors.New("they are turned off")
	if !c.cfg.NoSpaces {
		err = trySpaces(wants{files: true, ipc: true})
	}
	if err != nil {
		c.whyShared = "the worker cannot create namespaces, which needs CAP_SYS_ADMIN: " + err.Error()
	}
	return nil
}

// spaces creates the namespaces of a confinement.
func (c *Confiner) spaces(in *Confinement) (err error) {
	own := c.Switches() && c.whyShared == ""
	w := wants{files: own, ipc: own, network: c.cfg.Network == NetworkNone, shm: in.limits.MemoryBytes, keep: []string{c.root}}
	if own {
		w.tmp = in.tmp()
	}
	if w.any() {
		in.spaces, err = makeSpaces(w)
	}
	return err
}

// checkPassable returns an error that names the part of a path that other users cannot pass through, or nil.
func checkPassable(path string) error {
	for dir := path; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		switch {
		case err != nil:
			return err
		case info.Mode().Perm()&0o001 == 0:
			return fmt.Errorf("%s does not let other users pass to %s: choose another directory with --trial-dir, or chmod o+x it",
				dir, path)
		case dir == filepath.Dir(dir):
			return nil
		}
	}
}

// Exposed reports whether every user of the machine can read a file.
func Exposed(file string) (bool, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return false, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	return info.Mode().Perm()&0o004 != 0 && checkPassable(filepath.Dir(path)) == nil, nil
}

// Switches reports whether training code runs as another user than the worker.
func (c *Confiner) Switches() bool { return c.users != nil }

// Root returns the directory of trials' files if they run as other users, or "".
func (c *Confiner) Root() string { return c.root }

// IdleGroup returns the directory of a control group for low-priority work of the worker itself. Its processes only
// use idle CPUs for three seconds, and then get their share. Nice values cannot achieve that, because the kernel
// compares them only within one group, and trials are in other groups. It returns "" if the worker cannot create the
// group; then its work and its trials share one group for CPUs.
func (c *Confiner) IdleGroup() string {
	if c == nil {
		return ""
	}
	return c.idleGroup
}

// Reaches reports whether trials may enter a directory and read it.
func (c *Confiner) Reaches(dir string) bool {
	if c.users == nil {
		return true
	}
	return c.users.anyone().Reaches(dir)
}

// New creates a confinement. The caller closes it.
func (c *Confiner) New(ctx context.Context, l Limits) (_ *Confinement, err error) {
	c.mu.Lock()
	c.made++
	name := strconv.Itoa(c.made)
	c.mu.Unlock()
	l.processes = c.cfg.Processes
	in := &Confinement{limits: l, name: name, log: c.cfg.Logger, mark: newMark()}
	defer func() {
		if err != nil {
			err = errors.Join(err, in.Close())
		}
	}()
	if c.Switches() {
		if err := c.switchUser(ctx, in); err != nil {
			return nil, err
		}
	}
	if err := c.spaces(in); err != nil {
		return nil, err
	}
	if c.tree != nil {
		if in.group, err = c.tree.make(name, l); err != nil {
			return nil, fmt.Errorf("create a control group for a trial: %w", err)
		}
	}
	return in, nil
}

// Check creates and removes a control group, if trials get any.
func (c *Confiner) Check() error {
	if c.tree == nil {
		return nil
	}
	g, err := c.tree.make("check", Limits{})
	if err != nil {
		return err
	}
	return g.remove()
}

// switchUser gives a confinement a user, and the user a home directory.
func (c *Confiner) switchUser(ctx context.Context, in *Confinement) error {
	u, err := c.users.take(ctx)
	if err != nil {
		return fmt.Errorf("find a user for a trial: %w", err)
	}
	in.user = u
	if u.own {
		if err := c.record.addUser(u.UID); err != nil {
			return err
		}
		in.forget = func() error { return c.record.dropUser(u.UID) }
	}
	in.home = filepath.Join(c.root, "home-"+in.name)
	for _, dir := range []string{in.home, in.tmp()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return fmt.Errorf("create a home directory for a trial: %w", err)
		}
	}
	return in.Own(in.home)
}

// Close removes what the worker created.
func (c *Confiner) Close() error {
	var errs []error
	if c.idleGroup != "" {
		errs = append(errs, removeGroups(c.idleGroup))
	}
	if c.tree != nil {
		errs = append(errs, c.tree.close())
	}
	errs = append(errs, c.files.remove())
	return errors.Join(append(errs, c.record.remove())...)
}
