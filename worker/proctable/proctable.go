// Package proctable finds and ends processes by the kernel's table of them: on Linux /proc, and descriptors that
// refer to the same process as long as they are open.
package proctable

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// Timeout is the usual time in which killed processes must be gone.
const Timeout = 10 * time.Second

// KillAll kills the processes that find returns until it returns none, because they may have started others. If find
// fails with os.ErrNotExist, KillAll has nothing to kill.
func KillAll(find func() ([]int, error), deadline time.Time) error {
	for {
		pids, err := find()
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil || len(pids) == 0 {
			return err
		}
		if err := Kill(pids, deadline); err != nil {
			return err
		}
		if !time.Now().Before(deadline) {
			return fmt.Errorf("processes start others faster than they can be killed")
		}
	}
}
