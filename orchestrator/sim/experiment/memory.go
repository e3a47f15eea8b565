package experiment

import (
	"math"
	"runtime"
	"runtime/metrics"
	"time"
)

// memoryEvery is the interval between samples of the process's memory.
const memoryEvery = 50 * time.Millisecond

// watchMemory samples the process's memory until peak is called, which returns the maximum in bytes.
func watchMemory() (peak func() int64) {
	runtime.GC()
	done, most := make(chan struct{}), make(chan int64)
	go func() {
		tick := time.NewTicker(memoryEvery)
		defer tick.Stop()
		highest := memoryNow()
		for {
			select {
			case <-tick.C:
				highest = max(highest, memoryNow())
			case <-done:
				most <- max(highest, memoryNow())
				return
			}
		}
	}()
	return func() int64 {
		close(done)
		return <-most
	}
}

// memoryNow returns the memory that the Go runtime has obtained from the operating system.
func memoryNow() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	held := samples[0].Value.Uint64() - samples[1].Value.Uint64()
	return int64(min(held, math.MaxInt64))
}
