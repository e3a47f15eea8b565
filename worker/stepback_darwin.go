package worker

import "golang.org/x/sys/unix"

// averagingNice is how far averaging steps back.
const averagingNice = 10

// stepBack lowers the priority of this process.
func stepBack(string) {
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, averagingNice) // it averages all the same
}
