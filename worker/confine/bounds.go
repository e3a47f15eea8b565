package confine

import (
	"fmt"
	"slices"
	"strings"
)

// Default limits of one trial. Training with 64 data loaders and a collective library takes about a tenth of them.
const (
	// DefaultProcesses limits processes and threads.
	DefaultProcesses = 8192
	// DefaultFiles limits the open files of one process.
	DefaultFiles = 65536
)

// Exceeded describes which limits a trial has reached; 0 means not reached.
type Exceeded struct {
	// MemoryBytes is the memory limit if the kernel killed a process because of it.
	MemoryBytes int64
	// Processes is the limit of processes and threads if the kernel refused to start one because of it.
	Processes int64
}

// countsByUser reports whether the processes of a trial are limited by its user, because no control group counts them
// and each trial has its own user.
func (c *Confiner) countsByUser() bool {
	_, own := c.users.(*autoUsers)
	return own && (c.tree == nil || !slices.Contains(c.tree.controls(), "pids"))
}

// Warnings returns, each in one line, the resources that are not confined on this machine, so that trials could
// exhaust them.
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
			why = "the worker's control group does not have all controllers (systemd: Delegate=cpu memory pids)"
		}
		all = append(all, fmt.Sprintf("trials' %s are not limited: %s", list(missing), why))
	}
	if c.Switches() && c.whyShared != "" {
		all = append(all, "trials share /tmp, /dev/shm and System V IPC: "+c.whyShared)
	}
	return all
}

// list joins words with commas and "and".
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
