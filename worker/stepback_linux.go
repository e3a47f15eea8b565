package worker

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// averagingNice is how far averaging steps back: where all cores are busy it still gets about a tenth of what others get.
const averagingNice = 10

// stepBack lowers the priority of this process: of each of its threads, which those that they start inherit.
func stepBack() {
	for range 2 { // a thread may have been started meanwhile
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return // it averages all the same
		}
		for _, t := range threads {
			if id, err := strconv.Atoi(t.Name()); err == nil {
				_ = unix.Setpriority(unix.PRIO_PROCESS, id, averagingNice) // one that has ended
			}
		}
	}
}
