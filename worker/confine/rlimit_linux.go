package confine

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// limitSelf sets resource limits of this process, which every process that it starts inherits. Unlike other ways to
// limit trials, this needs no capability and applies from a trial's first instruction.
func limitSelf(most map[int]uint64) error {
	for resource, n := range most {
		var is syscall.Rlimit
		err := syscall.Getrlimit(resource, &is)
		if err == nil && is.Max > n {
			// This function of package syscall keeps the runtime from giving children the original limits of this
			// process.
			err = syscall.Setrlimit(resource, &syscall.Rlimit{Cur: n, Max: n})
		}
		if err != nil {
			return fmt.Errorf("set resource limits for trials: %w", err)
		}
	}
	return nil
}

// LimitSelf limits what this process and its children may use beyond the limits of control groups: open files, core
// dumps (disabled), and the processes of each user. The first two also limit the worker itself; the last one does so
// if the worker is not root.
func (c *Confiner) LimitSelf() error {
	most := map[int]uint64{unix.RLIMIT_CORE: 0}
	if c.cfg.Files > 0 {
		most[unix.RLIMIT_NOFILE] = uint64(c.cfg.Files)
	}
	if c.cfg.Processes > 0 && c.countsByUser() {
		most[unix.RLIMIT_NPROC] = uint64(c.cfg.Processes)
	}
	return limitSelf(most)
}
