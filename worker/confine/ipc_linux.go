package confine

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ipcRemove is the command that removes a System V object (IPC_RMID).
const ipcRemove = 0

// sweepIPC removes the System V shared memory, semaphores and message queues of a user.
func sweepIPC(uid uint32) error {
	var errs []error
	for name, call := range map[string]func(id uintptr) unix.Errno{
		"shm": func(id uintptr) unix.Errno { _, _, e := unix.Syscall(unix.SYS_SHMCTL, id, ipcRemove, 0); return e },
		"sem": func(id uintptr) unix.Errno {
			_, _, e := unix.Syscall6(unix.SYS_SEMCTL, id, 0, ipcRemove, 0, 0, 0)
			return e
		},
		"msg": func(id uintptr) unix.Errno { _, _, e := unix.Syscall(unix.SYS_MSGCTL, id, ipcRemove, 0); return e },
	} {
		ids, err := madeBy("/proc/sysvipc/"+name, uid)
		errs = append(errs, err)
		for _, id := range ids {
			if errno := call(id); errno != 0 && errno != unix.EINVAL && errno != unix.EIDRM {
				errs = append(errs, fmt.Errorf("remove %s %d of a trial: %w", name, id, errno))
			}
		}
	}
	return errors.Join(errs...)
}

// madeBy returns the ids in a table of the kernel whose objects a user created or owns.
func madeBy(path string, uid uint32) ([]uintptr, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // the kernel does not support it
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	lines := bufio.NewScanner(f)
	if !lines.Scan() {
		return nil, lines.Err()
	}
	columns := strings.Fields(lines.Text())
	var ids []uintptr
	for lines.Scan() {
		var id uintptr
		theirs := false
		for i, value := range strings.Fields(lines.Text()) {
			if i >= len(columns) {
				break
			}
			switch columns[i] {
			case "shmid", "semid", "msqid":
				_, err = fmt.Sscan(value, &id)
			case "uid", "cuid":
				theirs = theirs || value == fmt.Sprint(uid)
			}
		}
		if err == nil && theirs {
			ids = append(ids, id)
		}
	}
	return ids, lines.Err()
}
