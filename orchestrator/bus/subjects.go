package bus

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// The subjects in core NATS and JetStream. They end with a node, or with a node, a tenant, a sweep and a trial. Logs of
// servers before 2026-11 have neither node nor tenant. identity.Keys.IssueWorker determines which of them a worker may
// use.
const (
	uplinkPrefix = "outbid.v1.up."
	ordersPrefix = "outbid.v1.orders."
	logsPrefix   = "outbid.v1.logs."
	// keptPrefix starts the subjects of stored output, to which workers may not publish.
	keptPrefix = "outbid.v1.output."
)

var tokenPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// CheckToken returns an error unless name can be part of a subject. what names the thing in the error.
func CheckToken(what, name string) error {
	if !tokenPattern.MatchString(name) {
		return fmt.Errorf("%s %q: want 1 to 128 letters, digits, '-' or '_', starting with a letter or digit",
			what, name)
	}
	return nil
}

// UplinkSubject returns the subject of a node's uplinks.
func UplinkSubject(node string) string { return uplinkPrefix + node }

// OrdersSubject returns the subject of a node's orders.
func OrdersSubject(node string) string { return ordersPrefix + node }

// LogSubject returns the subject for a chunk of a trial's output.
func LogSubject(c *outbidv1.LogChunk) string {
	last := c.GetFork().GetSweep() + "." + strconv.FormatInt(int64(c.GetFork().GetTrial()), 10)
	return logsPrefix + c.GetNode() + "." + c.GetTenant() + "." + last
}

// keptSubject returns the subject of a stored chunk.
func keptSubject(c *outbidv1.LogChunk) string {
	return keptPrefix + strings.TrimPrefix(LogSubject(c), logsPrefix)
}

// keptSubjects returns the subjects of a tenant's stored output.
func keptSubjects(tenant string) string { return keptPrefix + "*." + tenant + ".*.*" }

// logFilter returns the subject for the output of a tenant's sweep, or of one trial, on any node.
func logFilter(tenant, sweep string, trial *int32) string {
	return keptPrefix + "*." + tenant + "." + sweep + "." + trialToken(trial)
}

func trialToken(trial *int32) string {
	if trial == nil {
		return "*"
	}
	return strconv.FormatInt(int64(*trial), 10)
}

// matchesSubject reports whether a chunk matches its subject: a worker may send only under its own name.
func matchesSubject(subject string, c *outbidv1.LogChunk) bool {
	return subject == keptSubject(c) || subject == LogSubject(c)
}

// NodeOf returns the node in a subject of a worker.
func NodeOf(subject string) string {
	if logs, ok := strings.CutPrefix(subject, logsPrefix); ok {
		node, _, _ := strings.Cut(logs, ".")
		return node
	}
	return subject[strings.LastIndexByte(subject, '.')+1:]
}
