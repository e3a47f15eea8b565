package session

import (
	"bytes"
	"strconv"
	"strings"
	"sync"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/process"
)

// marker begins a line that says which trial the output that follows belongs to: "\x1eoutbid:digits-1/17@42".
const marker = "\x1eoutbid:"

// output attributes what a process prints to its trials. A process that prints no markers is attributed by what it
// was last given to do.
type output struct {
	sink func(*outbidv1.ForkRef, process.Stream, []byte)

	mu      sync.Mutex
	current *outbidv1.ForkRef
	marked  map[process.Stream]*outbidv1.ForkRef
	tail    process.Tail
}

func newOutput(sink func(*outbidv1.ForkRef, process.Stream, []byte), first *outbidv1.ForkRef) *output {
	return &output{sink: sink, current: first, marked: make(map[process.Stream]*outbidv1.ForkRef)}
}

// begin says that a trial begins. The last lines of the one before do not explain how this one ends.
func (o *output) begin(fork *outbidv1.ForkRef) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.current = fork
	o.tail.Reset()
}

func (o *output) line(stream process.Stream, line []byte) {
	o.mu.Lock()
	if ref, ok := parseMarker(line); ok {
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

func (o *output) cause() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return OneLine(o.tail.Cause())
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
