package confine

import (
	"fmt"
	"slices"
	"strings"
)

// Defaults of what one trial may use. Training with 64 loaders of data and a collective library takes about a tenth of them.
const (
	// DefaultProcesses bounds processes and threads.
	DefaultProcesses = 8192
	// DefaultFiles bounds the open files of one process.
	DefaultFiles = 65536
)

// Exceeded says which limits of a trial its processes met; zero for none.
type Exceeded struct {
	// MemoryBytes is the limit of memory if the kernel killed a process for it.
	MemoryBytes int64
	// Processes is the limit of processes and threads if the kernel refused to start one.
	Processes int64
}

// countsByUser reports whether the processes of a trial are bounded by its user: no control group counts them, and nothing else is its user's.
func (c *Confiner) countsByUser() bool {
	_, own := c.users.(*autoUsers)
	return own && (c.tree == nil || !slices.Contains(c.tree.controls(), "pids"))
}

// Warnings returns what is not confined here although trials could use it up, each in one line; none where all is.
func (c *Confiner) Warnings() []string {
	var all []string
	var missing []string
	has := map[string]bool{}
	if c.tree != nil {
		for _, control := range c.tree.controls() {
			has[control] = true
		}
	}
	for _, limit := range []struct{ control, text string }{{"memory", "memory"}, {"cpu", "CPUs"}, {"pids", "processes"}} {
		if !has[limit.control] && (limit.control != "pids" || !c.countsByUser()) {
			missing = append(missing, limit.text)
		}
	}
	if len(missing) > 0 {
		why := c.whyNoTree
		if c.tree != nil {
			why = "the worker's control group has not all controllers (systemd: Delegate=cpu memory pids)"
		}
		all = append(all, fmt.Sprintf("trials' %s are not limited: %s", list(missing), why))
	}
	if c.Switches() && c.whyShared != "" {
		all = append(all, "trials share /tmp, /dev/shm and System V IPC: "+c.whyShared)
	}
	return all
}

// list joins words as people do.
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
