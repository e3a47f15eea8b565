// Package container reads the CPU and memory limits that a container, a pod or a service manager has set for this
// process by its control groups, in version 1 and 2.
package container

import "math"

// Limits are the limits of a process. They include those of all groups above its own that it can see.
type Limits struct {
	// CPUs is the number of CPUs whose time the process may use, such as 1.5; 0 means no limit.
	CPUs float64
	// CPUGroup identifies the control group that sets CPUs on this machine, or is "".
	CPUGroup string
	// MemoryBytes is the lowest limit of memory; 0 means no limit.
	MemoryBytes int64
}

// WholeCPUs returns how many CPUs the process may use out of n: fractions are dropped, because a trial on a part of a
// CPU would be slower than its neighbours, but a process has at least one.
func (l Limits) WholeCPUs(n int) int {
	if l.CPUs == 0 {
		return n
	}
	whole := math.Floor(l.CPUs + tolerance)
	return int(min(max(whole, 1), float64(n)))
}

// tolerance absorbs the rounding of a quota to whole microseconds.
const tolerance = 0.001

// limitCPUs lowers the limit to the quota of a group.
func (l *Limits) limitCPUs(quota, period float64, group string) {
	if quota <= 0 || period <= 0 {
		return
	}
	if cpus := quota / period; l.CPUs == 0 || cpus < l.CPUs {
		l.CPUs, l.CPUGroup = cpus, group
	}
}

// limitMemory lowers the limit to that of a group.
func (l *Limits) limitMemory(bytes int64) {
	if bytes > 0 && bytes < unlimitedV1 && (l.MemoryBytes == 0 || bytes < l.MemoryBytes) {
		l.MemoryBytes = bytes
	}
}

// unlimitedV1 is less than the value that version 1 reports without a limit: the largest multiple of a page, which
// depends on the size of a page.
const unlimitedV1 = math.MaxInt64 &^ (1<<20 - 1)
