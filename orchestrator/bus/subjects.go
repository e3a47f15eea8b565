package bus

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Subjects of core NATS and of JetStream. The last tokens are a node, or a node, a sweep and a trial. Logs of servers
// before 2026-11 name no node. What a worker may use of these is in identity.Keys.IssueWorker.
const (
	uplinkPrefix = "outbid.v1.up."
	ordersPrefix = "outbid.v1.orders."
	logsPrefix   = "outbid.v1.logs."
)

var tokenPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// CheckToken says whether name can be part of a subject; what is the thing named, for the error.
func CheckToken(what, name string) error {
	if !tokenPattern.MatchString(name) {
		return fmt.Errorf("%s %q: want 1 to 128 letters, digits, '-' or '_', beginning with a letter or digit",
			what, name)
	}
	return nil
}

// UplinkSubject is where a node speaks to the orchestrator.
func UplinkSubject(node string) string { return uplinkPrefix + node }

// OrdersSubject is where a node is told what to do.
func OrdersSubject(node string) string { return ordersPrefix + node }

// LogSubject is where a node sends the output of a trial.
func LogSubject(node, sweep string, trial int32) string {
	return logsPrefix + node + "." + sweep + "." + strconv.FormatInt(int64(trial), 10)
}

// logFilters are the subjects that hold the output of a sweep, or of one trial of it.
func logFilters(sweep string, trial *int32) []string {
	last := "*"
	if trial != nil {
		last = strconv.FormatInt(int64(*trial), 10)
	}
	return []string{logsPrefix + "*." + sweep + "." + last, logsPrefix + sweep + "." + last}
}

// saysSo says whether a chunk is what its subject says it is: a worker may send under its own name alone.
func saysSo(subject string, chunk *outbidv1.LogChunk) bool {
	parts := strings.Split(strings.TrimPrefix(subject, logsPrefix), ".")
	if len(parts) == 3 {
		if parts[0] != chunk.GetNode() {
			return false
		}
		parts = parts[1:]
	}
	return len(parts) == 2 && parts[0] == chunk.GetFork().GetSweep() &&
		parts[1] == strconv.FormatInt(int64(chunk.GetFork().GetTrial()), 10)
}
