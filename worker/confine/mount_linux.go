package confine

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mountedTree is a tree of control groups in hierarchies that were mounted for it.
type mountedTree struct {
	tree
	dir string
}

// openMounted mounts the hierarchies of control groups at a directory and creates a tree there. It needs
// CAP_SYS_ADMIN.
func openMounted(dir, name string) (_ tree, err error) {
	if err := unmountGroups(dir); err != nil { // left by a killed worker
		return nil, err
	}
	hierarchies, err := hierarchies("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unmountGroups(dir))
		}
	}()
	if len(hierarchies) == 0 {
		if err := mountGroup(dir, "cgroup2", ""); err != nil {
			return nil, err
		}
		t, err := openV2(dir, name)
		if err != nil {
			return nil, err
		}
		return &mountedTree{t, dir}, nil
	}
	for controller, together := range hierarchies {
		if err := mountGroup(filepath.Join(dir, controller), "cgroup", together); err != nil {
			return nil, err
		}
	}
	t, err := openV1(dir, name)
	if err != nil {
		return nil, err
	}
	return &mountedTree{t, dir}, nil
}

// hierarchies returns the controllers of version 1 that are used here, each with all controllers of its hierarchy. It
// returns none if the kernel uses only version 2.
func hierarchies(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	found := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		_, rest, _ := strings.Cut(lines.Text(), ":")
		together, _, _ := strings.Cut(rest, ":")
		for controller := range strings.SplitSeq(together, ",") {
			if slices.Contains([]string{"memory", "cpu", "pids", "freezer"}, controller) {
				found[controller] = together
			}
		}
	}
	return found, nil
}

func mountGroup(at, kind, controllers string) error {
	if err := os.MkdirAll(at, 0o700); err != nil {
		return err
	}
	if err := unix.Mount(kind, at, kind, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, controllers); err != nil {
		return fmt.Errorf("mount control groups at %s: %w", at, err)
	}
	return nil
}

// unmountGroups removes the mounts at and below a directory, and the directory.
func unmountGroups(dir string) error {
	inside, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range inside { // in version 2 these are groups, which are not mount points
		_ = unix.Unmount(filepath.Join(dir, e.Name()), unix.MNT_DETACH)
	}
	_ = unix.Unmount(dir, unix.MNT_DETACH)
	for _, e := range inside {
		_ = os.Remove(filepath.Join(dir, e.Name()))
	}
	return os.Remove(dir)
}

func (t *mountedTree) close() error {
	return errors.Join(t.tree.close(), unmountGroups(t.dir))
}
