// Package proctable finds and ends processes in the kernel's table, by what the kernel says of them: on Linux /proc, and
// descriptors that name one process for as long as they are open.
package proctable

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// Timeout is how long processes that were killed may take to be gone, as a rule.
const Timeout = 10 * time.Second

// KillAll kills the processes that find finds until it finds none: those that are found may have started others. A find
// that fails with os.ErrNotExist has found none.
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
			return fmt.Errorf("processes start others faster than they are killed")
		}
	}
}
