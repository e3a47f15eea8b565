package bus

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Subjects of core NATS and of JetStream. The last tokens are a node, or a node, a tenant, a sweep and a trial. Logs of
// servers before 2026-11 name neither node nor tenant. What a worker may use of these is in identity.Keys.IssueWorker.
const (
	uplinkPrefix = "outbid.v1.up."
	ordersPrefix = "outbid.v1.orders."
	logsPrefix   = "outbid.v1.logs."
	// keptPrefix begins what the orchestrator keeps of that; workers may not publish there.
	keptPrefix = "outbid.v1.output."
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

// LogSubject is where a node sends a chunk of a trial's output. An orchestrator of before, which names no tenant in its
// orders, wants no node either.
func LogSubject(c *outbidv1.LogChunk) string {
	last := c.GetFork().GetSweep() + "." + strconv.FormatInt(int64(c.GetFork().GetTrial()), 10)
	if c.GetTenant() == "" {
		return logsPrefix + last
	}
	return logsPrefix + c.GetNode() + "." + c.GetTenant() + "." + last
}

// keptSubject is where the orchestrator keeps a chunk.
func keptSubject(c *outbidv1.LogChunk) string {
	return keptPrefix + strings.TrimPrefix(LogSubject(c), logsPrefix)
}

// keptSubjects are those of a tenant.
func keptSubjects(tenant string) string { return keptPrefix + "*." + tenant + ".*.*" }

// logFilters are the subjects of the output of a tenant's sweep, or of one trial of it, on any node: as it is kept, and as
// it was by versions that let workers publish into the tenant's stream.
func logFilters(tenant, sweep string, trial *int32) []string {
	last := "*." + tenant + "." + sweep + "." + trialToken(trial)
	return []string{keptPrefix + last, logsPrefix + last}
}

// oldLogFilters are the subjects of versions that named no tenant.
func oldLogFilters(sweep string, trial *int32) []string {
	return []string{logsPrefix + sweep + "." + trialToken(trial)}
}

func trialToken(trial *int32) string {
	if trial == nil {
		return "*"
	}
	return strconv.FormatInt(int64(*trial), 10)
}

// saysSo says whether a chunk is what its subject says it is: a worker may send under its own name alone.
func saysSo(subject string, c *outbidv1.LogChunk) bool {
	return subject == keptSubject(c) || subject == LogSubject(c)
}

// NodeOf is the node that a subject of a worker's names.
func NodeOf(subject string) string {
	if logs, ok := strings.CutPrefix(subject, logsPrefix); ok {
		node, _, _ := strings.Cut(logs, ".")
		return node
	}
	return subject[strings.LastIndexByte(subject, '.')+1:]
}
