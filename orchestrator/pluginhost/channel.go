package pluginhost

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
)

// Channel names the variable with the file descriptor of a socket to the server, on which a program may answer frequent
// calls without gRPC. The program's service says whether it does so.
const Channel = "OUTBID_PLUGIN_CHANNEL"

// newChannel returns both ends of a new socket: the program's and the server's connection.
func newChannel() (theirs *os.File, ours net.Conn, err error) {
	syscall.ForkLock.RLock() // so that a process that starts now does not inherit them
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("create a socket: %w", err)
	}
	theirs, file := os.NewFile(uintptr(fds[0]), "channel"), os.NewFile(uintptr(fds[1]), "channel")
	ours, err = net.FileConn(file)
	_ = file.Close() // FileConn has duplicated it
	if err != nil {
		_ = theirs.Close()
		return nil, nil, fmt.Errorf("create a socket: %w", err)
	}
	return theirs, ours, nil
}

// ChannelToServer returns a program's end of the channel. It is nil if the server does not have one.
func ChannelToServer() (net.Conn, error) {
	fd, err := strconv.Atoi(os.Getenv(Channel))
	if err != nil {
		return nil, nil //nolint:nilnil,nilerr // servers before the channel set no variable
	}
	syscall.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), "channel")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("%s=%d: %w", Channel, fd, err)
	}
	return conn, nil
}
