package session

import "golang.org/x/sys/unix"

// peerUser is whose process is at the other end of a Unix socket.
func peerUser(fd int) (uint32, error) {
	cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, err
	}
	return cred.Uid, nil
}
