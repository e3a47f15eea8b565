package worker

import "golang.org/x/sys/unix"

// averagingNice is the nice value of averaging.
const averagingNice = 10

// stepBack lowers the priority of this process.
func stepBack(string) {
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, averagingNice) // on failure it averages at normal priority
}
