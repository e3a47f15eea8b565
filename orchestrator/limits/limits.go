// Package limits holds the largest sizes of what enters Outbid from outside: what training code reports, what programs
// print, what workers say. Every size is in bytes. A value above its limit is refused where it enters, with an error that
// names the thing, its size and the limit.
package limits

// Message is the smallest max_payload of a NATS server that Outbid works with. All other limits follow from it: what one
// message must carry has to fit into Message with the envelope around it.
const Message = 64 << 10

// Report bounds one report: its metrics, its attributes and the fields around them, encoded as a protocol buffer. The rest
// of Message is for the envelope: the names of node, sweep and trial, the signature, the sequence. The SDK raises ValueError
// in trial.report or trial.note. A line of a program's report file that is larger is noted and does not count. A report that
// reaches the worker all the same fails its trial.
const Report = 60 << 10

// MetricName bounds the name of a metric or of an attribute. What a user sees is as for Report.
const MetricName = 256

// Detail bounds the line that says why a trial, an average or a checkpoint failed. Longer text is cut and ends with
// sanitize.Cut.
const Detail = 1000

// Note bounds the text of one note of a sweep. Longer text is cut and ends with sanitize.Cut.
const Note = 4 << 10

// Label bounds the text of one name that a machine gives: a device's name, a host's name, a label's name or value. What
// machines wrote is cut; what a person typed is refused.
const Label = 256
