package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/cgroups/v3"
	"golang.org/x/sys/unix"
)

// openTree creates the tree of control groups, in the version that the machine uses. If control groups are not
// mounted, as in 'ip netns exec', it mounts them at a directory that it creates.
func openTree(mountAt string) (tree, error) {
	name := fmt.Sprintf("outbid-%d.%s-%s", os.Getpid(), pidNamespace(), strings.ToLower(newMark()[len(markEnv)+1:][:8]))
	if !groupsMounted() {
		t, err := openMounted(mountAt, name)
		if err != nil {
			return nil, fmt.Errorf("no control groups are mounted at %s: %w", usualMount, err)
		}
		return t, nil
	}
	if cgroups.Mode() == cgroups.Unified {
		return openV2(usualMount, name)
	}
	return openV1(usualMount, name)
}

// groupsMounted reports whether control groups are mounted at the usual place, which otherwise is an empty directory
// of the kernel.
func groupsMounted() bool {
	var fs unix.Statfs_t
	return unix.Statfs(usualMount, &fs) == nil && fs.Type != unix.SYSFS_MAGIC
}

// Groups returns which version of control groups this process can create, and their controllers: cpu, memory, pids.
// The error says why it cannot create any. It creates a group and removes it again.
func Groups() (version string, controls []string, err error) {
	dir, err := os.MkdirTemp("", "outbid-groups-")
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	t, err := openTree(filepath.Join(dir, "groups"))
	if err != nil {
		return "", nil, err
	}
	version = "1"
	own := t
	if m, ok := t.(*mountedTree); ok {
		own = m.tree
	}
	if _, ok := own.(*treeV2); ok {
		version = "2"
	}
	return version, t.controls(), t.close()
}
