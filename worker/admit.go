package worker

import (
	"fmt"

	"github.com/dustin/go-humanize"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// maxMessage is the largest size of an encoded message of an uplink, in bytes. The largest report with its envelope
// fits, and such a message in an uplink fits into the smallest message size that NATS may be configured with.
const maxMessage = limits.Message - 2<<10

// uplinkMessages is the number of the field of an Uplink that holds its messages.
const uplinkMessages = 4

// admit returns how many bytes a message takes in an uplink. It makes invalid text valid and truncates text that is
// too long. The error says why the message cannot be sent nevertheless. The caller holds the lock.
func (o *outbox) admit(m *outbidv1.UplinkMessage) (int, error) {
	n, err := o.encodedSize(m)
	if err != nil && sanitize.Message(m) {
		n, err = o.encodedSize(m)
	}
	if err == nil && n > maxMessage && cutText(m) {
		n, err = o.encodedSize(m)
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("cannot be encoded: %w", err)
	case n > maxMessage:
		return 0, tooLarge(n, maxMessage)
	}
	return protowire.SizeTag(uplinkMessages) + protowire.SizeBytes(n), nil
}

// encodedSize returns the encoded size of a message, or why it cannot be encoded. The caller holds the lock.
func (o *outbox) encodedSize(m *outbidv1.UplinkMessage) (int, error) {
	data, err := proto.MarshalOptions{}.MarshalAppend(o.scratch[:0], m)
	if err != nil {
		return 0, err
	}
	o.scratch = data
	return len(data), nil
}

// cutText truncates the text that a message carries for people, and reports whether it carries any.
func cutText(m *outbidv1.UplinkMessage) bool {
	switch k := m.GetKind().(type) {
	case *outbidv1.UplinkMessage_Ended:
		k.Ended.Detail = sanitize.Line(k.Ended.GetDetail(), limits.Detail)
	case *outbidv1.UplinkMessage_Note:
		k.Note.Text = sanitize.Line(k.Note.GetText(), limits.Note)
	case *outbidv1.UplinkMessage_Consolidated:
		k.Consolidated.Failure = sanitize.Line(k.Consolidated.GetFailure(), limits.Detail)
	default:
		return false
	}
	return true
}

// tooLarge returns an error with a size and the largest allowed size, in bytes.
func tooLarge(n, most int) error {
	return fmt.Errorf("has %s bytes; at most %s are allowed", humanize.Comma(int64(n)), humanize.Comma(int64(most)))
}

// checkReport returns why a report of training code is invalid, or nil. It makes the values of attributes valid.
func checkReport(r *outbidv1.Report) error {
	if n := reportSize(r); n > limits.Report {
		return fmt.Errorf("%w, and it holds %d metrics and %d attributes", tooLarge(n, limits.Report), len(r.GetMetrics()), len(r.GetAttributes()))
	}
	for name := range r.GetMetrics() {
		if err := sanitize.Check(name, limits.Name); err != nil {
			return fmt.Errorf("has a metric %q whose name %w", sanitize.Line(name, shownName), err)
		}
	}
	for name, value := range r.GetAttributes() {
		if err := sanitize.Check(name, limits.Name); err != nil {
			return fmt.Errorf("has an attribute %q whose name %w", sanitize.Line(name, shownName), err)
		}
		r.Attributes[name] = sanitize.Text(value, limits.Report)
	}
	return nil
}

// reportSize returns an upper bound of a report's encoded size, which is exact except for small numbers. There are
// too many reports to encode each of them twice.
func reportSize(r *outbidv1.Report) int {
	const (
		numbers = 5 * (1 + 10) // seq, step, train_seconds, lease_id, fork_step
		value   = 1 + 8        // of a metric
	)
	n := numbers + len(r.ProtoReflect().GetUnknown())
	if t := r.GetTime(); t != nil {
		n += 1 + protowire.SizeBytes(proto.Size(t))
	}
	for name := range r.GetMetrics() {
		n += 1 + protowire.SizeBytes(1+protowire.SizeBytes(len(name))+value)
	}
	for name, text := range r.GetAttributes() {
		n += 1 + protowire.SizeBytes(1+protowire.SizeBytes(len(name))+1+protowire.SizeBytes(len(text)))
	}
	return n
}

// admitReport returns how many bytes a report that checkReport has accepted takes in an uplink.
func admitReport(f *forkMessages, r *outbidv1.Report) int {
	n := 1 + protowire.SizeBytes(proto.Size(f.ref)) + 1 + protowire.SizeBytes(reportSize(r))
	return protowire.SizeTag(uplinkMessages) + protowire.SizeBytes(n)
}

// shownName is how many bytes of an overlong name are quoted in an error.
const shownName = 40

// limitWidth limits how many messages go into one uplink and sends the messages in flight again, because one of them
// cannot be sent.
func (o *outbox) limitWidth(width int) {
	o.mu.Lock()
	o.width = max(width, 1)
	o.mu.Unlock()
	o.resend()
}

// drop removes the message of a sequence number, which cannot be sent, and returns it. An empty message replaces it,
// because sequence numbers must not have a gap. A fork's end is replaced by a failure, because every fork has to end.
func (o *outbox) drop(seq uint64, why error) (entry, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.width = 0
	if seq < o.first || seq-o.first >= uint64(len(o.entries)) {
		return entry{}, false
	}
	e := &o.entries[seq-o.first]
	dropped := *e
	e.message, e.report = &outbidv1.UplinkMessage{Fork: dropped.message.GetFork()}, 0
	if end := dropped.message.GetEnded(); end != nil {
		e.message.Kind = lost(dropped.message, end.GetStep(), why)
	}
	o.updateSize(e)
	o.failEnd(dropped, why)
	return dropped, true
}

// failEnd turns the end of the fork whose message was dropped into a failure, if the end is queued already. The
// caller holds the lock.
func (o *outbox) failEnd(dropped entry, why error) {
	if _, note := dropped.message.GetKind().(*outbidv1.UplinkMessage_Note); note || dropped.fork == nil {
		return
	}
	for i := range o.entries {
		e := &o.entries[i]
		if end := e.message.GetEnded(); e.fork == dropped.fork && end != nil {
			e.message = &outbidv1.UplinkMessage{Fork: e.message.GetFork(), Kind: lost(dropped.message, end.GetStep(), why)}
			o.updateSize(e)
		}
	}
}

// updateSize updates the sizes after the message of an entry was replaced. The caller holds the lock.
func (o *outbox) updateSize(e *entry) {
	before := e.bytes
	e.bytes, _ = o.admit(e.message) // cannot fail: small and valid text
	o.count(e.fork, 0, e.bytes-before)
}

// lost returns a fork's end at a step that says that a message of the fork was lost.
func lost(m *outbidv1.UplinkMessage, step int64, why error) *outbidv1.UplinkMessage_Ended {
	end := lostFailure(m, why).ended()
	end.Step = step
	return &outbidv1.UplinkMessage_Ended{Ended: end}
}

// lostFailure returns a failure that says which message was lost, and why.
func lostFailure(m *outbidv1.UplinkMessage, why error) *failure {
	what := "a message of its worker"
	switch k := m.GetKind().(type) {
	case *outbidv1.UplinkMessage_Report:
		what = fmt.Sprintf("the report of step %d", k.Report.GetStep())
	case *outbidv1.UplinkMessage_Saved:
		what = fmt.Sprintf("the checkpoint of step %d", k.Saved.GetStep())
	case *outbidv1.UplinkMessage_Shard:
		what = fmt.Sprintf("the shard of step %d", k.Shard.GetStep())
	case *outbidv1.UplinkMessage_Reached:
		what = fmt.Sprintf("the message that step %d was reached", k.Reached.GetStep())
	}
	return fail(outbidv1.FailureKind_FAILURE_KIND_ERROR, "%s", sanitize.Line(fmt.Sprintf("%s is lost: %s", what, why), limits.Detail))
}
