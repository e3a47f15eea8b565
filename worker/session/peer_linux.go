package session

import "golang.org/x/sys/unix"

// peerUser returns the uid and the pid of the process at the other end of a Unix socket.
func peerUser(fd int) (uid uint32, pid int, err error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, 0, err
	}
	return cred.Uid, int(cred.Pid), nil
}
