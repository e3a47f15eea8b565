package nodes

import (
	"fmt"
	"strconv"
	"strings"
)

// refusal returns why a server refuses a worker, or "" if both work together: those of one major version do. A version
// that is not a release, as in tests, is not compared.
func refusal(server, worker string) string {
	ours, known := major(server)
	theirs, given := major(worker)
	if !known || !given || ours == theirs {
		return ""
	}
	return fmt.Sprintf("the server has version %s and this worker %s: they must have the same major version; install the "+
		"server's version of outbid on this machine", server, worker)
}

// major returns the major version of a release such as 1.2.3-rc.1+abc, and whether the text is a release.
func major(version string) (int, bool) {
	first, rest, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(first)
	return n, err == nil && strings.Contains(rest, ".")
}
