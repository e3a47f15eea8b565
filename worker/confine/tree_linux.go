package confine

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/containerd/cgroups/v3"
)

// openTree makes the tree of the control groups, of the version that the machine has.
func openTree() (tree, error) {
	name := fmt.Sprintf("outbid-%d.%s-%s", os.Getpid(), pidNamespace(), strings.ToLower(newMark()[len(markEnv)+1:][:8]))
	switch cgroups.Mode() {
	case cgroups.Unified:
		return openV2("/sys/fs/cgroup", name)
	case cgroups.Legacy, cgroups.Hybrid:
		return openV1(name)
	case cgroups.Unavailable:
	}
	return nil, errors.New("this machine has no control groups at /sys/fs/cgroup")
}

// Groups says which version of control groups this process may make, and which limits hold in them: cpu, memory. An error
// says why there are none. It tries, and removes what it made.
func Groups() (version string, controls []string, err error) {
	t, err := openTree()
	if err != nil {
		return "", nil, err
	}
	version = "1"
	if _, ok := t.(*treeV2); ok {
		version = "2"
	}
	return version, t.controls(), t.close()
}
