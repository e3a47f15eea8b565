package confine

// wants describes the namespaces of a trial.
type wants struct {
	// files: its own /tmp, at the directory tmp, and its own /dev/shm of shm bytes, where 0 means half of the
	// machine's memory. ipc: its own System V IPC and POSIX message queues. network: only a loopback interface.
	files, ipc, network bool
	tmp                 string
	shm                 int64
	// keep are directories below /tmp that stay visible.
	keep []string
}

func (w wants) any() bool { return w.files || w.ipc || w.network }

// Values of Config.Network.
const (
	// NetworkHost is the network of the machine.
	NetworkHost = "host"
	// NetworkNone is only the trial's own loopback interface.
	NetworkNone = "none"
)
