package bus

import (
	"fmt"
	"regexp"
	"strconv"
)

// Subjects of core NATS and of JetStream. The last tokens are a node, or a sweep and a trial.
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

// LogSubject is where the output of a trial goes.
func LogSubject(sweep string, trial int32) string {
	return logsPrefix + sweep + "." + strconv.FormatInt(int64(trial), 10)
}
