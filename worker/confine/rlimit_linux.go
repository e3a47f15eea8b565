package confine

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// limitSelf bounds this process, and so all that it starts from now on. It is how trials are bounded: nothing else takes no capability and holds from a
// trial's first instruction.
func limitSelf(most map[int]uint64) error {
	for resource, n := range most {
		var is syscall.Rlimit
		err := syscall.Getrlimit(resource, &is)
		if err == nil && is.Max > n {
			// The function of this package keeps the runtime from giving children the limits that this process began with.
			err = syscall.Setrlimit(resource, &syscall.Rlimit{Cur: n, Max: n})
		}
		if err != nil {
			return fmt.Errorf("limit what trials may use: %w", err)
		}
	}
	return nil
}

// LimitSelf bounds what this process and all that it starts may use, where no control group does: open files, core dumps, which there are none of, and the
// processes of each user. The first two bound the worker itself too, the last one does if it is not root.
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
