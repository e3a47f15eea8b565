package confine

// wants says which namespaces a trial gets of its own.
type wants struct {
	// files: a /tmp that is a directory of the trial's, and a /dev/shm of so many bytes, 0 for half of the machine's memory. ipc: System V IPC and POSIX message queues. network:
	// nothing but a loopback.
	files, ipc, network bool
	tmp                 string
	shm                 int64
	// keep are directories below /tmp that stay where they are.
	keep []string
}

func (w wants) any() bool { return w.files || w.ipc || w.network }

// How trials reach the network.
const (
	// NetworkHost is the network of the machine.
	NetworkHost = "host"
	// NetworkNone is a loopback of the trial's own.
	NetworkNone = "none"
)
