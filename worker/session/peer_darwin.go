package session

import "golang.org/x/sys/unix"

// peerUser returns the uid of the process at the other end of a Unix socket. The kernel does not provide its pid.
func peerUser(fd int) (uid uint32, pid int, err error) {
	cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, 0, err
	}
	return cred.Uid, 0, nil
}
