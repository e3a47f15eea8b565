// Package confine makes what training code runs in: a user of its own where the worker may switch users, and a control
// group where the worker may make one. It finds every process that a trial left behind and ends it, and removes the
// files. What it cannot confine on this machine it says.
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

// How training code gets its user.
const (
	// None runs it as the worker's own user.
	None = "none"
	// Auto gives each trial that runs a user id of its own, which no account has.
	Auto = "auto"
)

// Config says how training code is confined.
type Config struct {
	// Dir is the worker's own directory.
	Dir string
	// User is None, Auto, or the name of a user; empty is None.
	User string
	// Groups are names of groups that training code keeps, such as video, because devices need them.
	Groups []string
	// TrialDir is where the directory with the files of trials that run as another user is made; it must be one that
	// everybody may pass through. Empty is /var/tmp.
	TrialDir string
	// NoGroups makes no control groups, as on a machine that has none.
	NoGroups bool
	// NoSpaces makes no namespaces but what Network takes, as where the worker may make none.
	NoSpaces bool
	// Network is NetworkHost or NetworkNone; empty is NetworkHost.
	Network string
	// Processes bounds the processes and threads of one trial, and Files the open files of each of its processes; 0 for no bound.
	Processes, Files int64
	Logger           *slog.Logger
}

// Limits are what a trial asked for; zero for no limit.
type Limits struct {
	CPUs        float64
	MemoryBytes int64
	// processes is filled in by the Confiner.
	processes int64
}

// Confiner makes confinements for one worker. Close it.
type Confiner struct {
	cfg   Config
	users userSource
	tree  tree // nil without control groups
	// whyNoTree says why there are none.
	whyNoTree string
	// behind is the control group of what steps back; "" without one.
	behind string
	root   string // of trials' files, if they run as another user; files removes it
	files  *root
	record *record
	// whyShared says why trials have no /tmp, /dev/shm and System V IPC of their own; "" if they have.
	whyShared string

	mu   sync.Mutex
	made int
}

// Open looks at what the machine allows, and ends what an earlier worker left in the same directory; of those that were
// killed elsewhere it ends the trials and removes the control groups and files. Only the worker that holds the directory's lock may call it.
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
	c := &Confiner{cfg: cfg, users: users, record: newRecord(cfg.Dir)}
	err = errors.New("they are turned off")
	if !cfg.NoGroups {
		c.tree, err = openTree(filepath.Join(cfg.Dir, "cgroup"))
	}
	if err != nil {
		c.whyNoTree = err.Error()
	}
	if c.tree != nil {
		if c.behind, err = c.tree.behind(); err != nil {
			return nil, errors.Join(fmt.Errorf("make a control group for what steps back: %w", err), c.Close())
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
	if c.behind != "" {
		c.record.Groups = append(slices.Clone(c.record.Groups), c.behind)
	}
	return c, c.record.save()
}

// openSpaces finds out whether the worker can make namespaces.
func (c *Confiner) openSpaces() error {
	if c.cfg.Network == NetworkNone {
		if err := trySpaces(wants{network: true}); err != nil {
			return fmt.Errorf("trials without a network: that takes root, or the capability CAP_SYS_ADMIN: %w", err)
		}
	}
	err := errors.New("they are turned off")
	if !c.cfg.NoSpaces {
		err = trySpaces(wants{files: true, ipc: true})
	}
	if err != nil {
		c.whyShared = "the worker may make no namespaces, which takes CAP_SYS_ADMIN: " + err.Error()
	}
	return nil
}

// spaces makes the namespaces of a confinement.
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

// passable says which part of a path keeps others out.
func passable(path string) error {
	for dir := path; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		switch {
		case err != nil:
			return err
		case info.Mode().Perm()&0o001 == 0:
			return fmt.Errorf("%s lets no other user pass to %s: name another directory with --trial-dir, or chmod o+x it",
				dir, path)
		case dir == filepath.Dir(dir):
			return nil
		}
	}
}

// Exposed says whether every user of the machine can read a file.
func Exposed(file string) (bool, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return false, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	return info.Mode().Perm()&0o004 != 0 && passable(filepath.Dir(path)) == nil, nil
}

// Switches says whether training code runs as another user than the worker.
func (c *Confiner) Switches() bool { return c.users != nil }

// Root is the directory of trials' files if they run as another user; "" otherwise.
func (c *Confiner) Root() string { return c.root }

// IdleGroup is the directory of a control group for the worker's own work that everything else goes before: what is in it
// takes only CPUs that nobody else wants, for three seconds, and then its share. A nice value does not do that: the kernel compares
// those within one group alone, and trials are in others. "" if the worker may make none; then it is in one group with its trials as far as CPUs go.
func (c *Confiner) IdleGroup() string {
	if c == nil {
		return ""
	}
	return c.behind
}

// Reaches says whether trials may enter a directory and read it.
func (c *Confiner) Reaches(dir string) bool {
	if c.users == nil {
		return true
	}
	return c.users.anyone().Reaches(dir)
}

// New makes a confinement. Close it.
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
			return nil, fmt.Errorf("make a control group for a trial: %w", err)
		}
	}
	return in, nil
}

// Check makes and removes a control group as a trial gets, if trials get any.
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

// switchUser gives a confinement a user, and the user a home.
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
			return fmt.Errorf("make a home for a trial: %w", err)
		}
	}
	return in.Own(in.home)
}

// Close removes what the worker made.
func (c *Confiner) Close() error {
	var errs []error
	if c.behind != "" {
		errs = append(errs, removeGroups(c.behind))
	}
	if c.tree != nil {
		errs = append(errs, c.tree.close())
	}
	errs = append(errs, c.files.remove())
	return errors.Join(append(errs, c.record.remove())...)
}
