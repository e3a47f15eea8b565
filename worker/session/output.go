package session

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"sync"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/process"
)

// marker begins a line that says which trial the output after it belongs to: "\x1eoutbid:digits-1/17@42".
const marker = "\x1eoutbid:"

// recentTrials is how many of the latest trials of a process a marker may name, because output is read later than it
// is printed.
const recentTrials = 64

// output attributes the output of a process to its trials. If a process prints no markers, its output belongs to its
// current trial. A marker that names a trial of another process is ordinary text: otherwise code of one tenant could
// print into the log of another.
type output struct {
	sink func(*outbidv1.ForkRef, process.Stream, []byte)

	mu      sync.Mutex
	current *outbidv1.ForkRef
	// recent are the last trials of the process, the newest last.
	recent []*outbidv1.ForkRef
	marked map[process.Stream]*outbidv1.ForkRef
	tail   process.Tail
}

func newOutput(sink func(*outbidv1.ForkRef, process.Stream, []byte), first *outbidv1.ForkRef) *output {
	return &output{sink: sink, current: first, recent: []*outbidv1.ForkRef{first}, marked: make(map[process.Stream]*outbidv1.ForkRef)}
}

// begin records that a trial begins. It drops the last lines of the previous trial, because they do not explain how
// this one ends.
func (o *output) begin(fork *outbidv1.ForkRef) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.current = fork
	o.recent = append(o.recent[max(0, len(o.recent)-recentTrials+1):], fork)
	o.tail.Reset()
}

func (o *output) line(stream process.Stream, line []byte) {
	o.mu.Lock()
	if ref, ok := parseMarker(line); ok && o.ranRecently(ref) {
		o.marked[stream] = ref
		o.mu.Unlock()
		return
	}
	if stream == process.Stderr {
		o.tail.Add(line)
	}
	fork := o.current
	if ref := o.marked[stream]; ref != nil {
		fork = ref
	}
	o.mu.Unlock()
	if o.sink != nil {
		o.sink(fork, stream, line)
	}
}

// ranRecently reports whether the process ran a trial recently. The caller holds the lock.
func (o *output) ranRecently(ref *outbidv1.ForkRef) bool {
	return slices.ContainsFunc(o.recent, func(f *outbidv1.ForkRef) bool {
		return f.GetLeaseId() == ref.GetLeaseId() && f.GetTrial() == ref.GetTrial() && f.GetSweep() == ref.GetSweep()
	})
}

func (o *output) cause() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tail.Cause()
}

func parseMarker(line []byte) (*outbidv1.ForkRef, bool) {
	text, ok := bytes.CutPrefix(line, []byte(marker))
	if !ok {
		return nil, false
	}
	name, leaseID, ok1 := strings.Cut(string(text), "@")
	sweep, trial, ok2 := strings.Cut(name, "/")
	number, err1 := strconv.ParseInt(trial, 10, 32)
	lease, err2 := strconv.ParseUint(strings.TrimSpace(leaseID), 10, 64)
	if !ok1 || !ok2 || sweep == "" || err1 != nil || err2 != nil {
		return nil, false
	}
	return &outbidv1.ForkRef{Sweep: sweep, Trial: int32(number), LeaseId: lease}, true
}
