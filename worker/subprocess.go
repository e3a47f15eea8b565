package worker

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint"
	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/confine"
)

// workerWord is what the process is told: what to average next, or the right that it asked for. It comes over a pipe: others
// see a command line, and signed URLs are secrets.
type workerWord struct {
	Order *subprocessOrder
	Right *subprocessRight
}

// subprocessOrder is what the process is to average, and where.
type subprocessOrder struct {
	// Store is where the process opens the store by itself; if it is empty it asks the worker for the right to each object,
	// of the store called Name, and trusts servers whose certificate Authority signed beside those of the system.
	Store, Name string
	Authority   []byte
	Order       []byte
	// Behind is the directory of the control group that it steps back into; "" for none.
	Behind string
	// Rate is how many bytes a second it may read; 0 for no limit.
	Rate int64
}

// subprocessWord is what the process says: that it needs the right to an object, or at last its answer.
type subprocessWord struct {
	Ask    *subprocessAsk
	Answer subprocessAnswer
}

// subprocessAsk asks for the right to read an object, or to write one of so many bytes.
type subprocessAsk struct {
	Key   string
	Write bool
	Size  int64
}

// subprocessRight is what the worker says to that, and how the store is called.
type subprocessRight struct {
	Signed  objects.Signed
	Name    string
	Failure subprocessFailure
}

// subprocessAnswer is what became of the average.
type subprocessAnswer struct {
	Checkpoint []byte
	Failure    subprocessFailure
}

// subprocessFailure is an error on its way between the two, nil if it has no text.
type subprocessFailure struct {
	Text string
	// Kinds are which of the errors below it is.
	Kinds []int
}

// subprocessErrors are the errors that are told apart by who has something averaged.
func subprocessErrors() []error {
	return []error{
		checkpoint.ErrMismatch, checkpoint.ErrNotFinite, checkpoint.ErrDamaged, checkpoint.ErrWeight, safetensors.ErrFormat,
		objects.ErrUnavailable, objects.ErrFull, objects.ErrNotFound, objects.ErrRefused,
	}
}

func failureOf(err error) (f subprocessFailure) {
	if err == nil {
		return f
	}
	f.Text = err.Error()
	for k, kind := range subprocessErrors() {
		if errors.Is(err, kind) {
			f.Kinds = append(f.Kinds, k)
		}
	}
	return f
}

func (f subprocessFailure) err() error {
	if f.Text == "" {
		return nil
	}
	e := &averageFailure{text: f.Text}
	for _, k := range f.Kinds {
		e.is = append(e.is, subprocessErrors()[k])
	}
	return e
}

// averageFailure is what the other process says went wrong.
type averageFailure struct {
	text string
	is   []error
}

func (f *averageFailure) Error() string { return f.text }

func (f *averageFailure) Is(target error) bool { return slices.Contains(f.is, target) }

// inSubprocess says how a process of its own reaches a store; false if it cannot.
func inSubprocess(store objects.Access) (o subprocessOrder, ok bool) {
	if !subprocesses.Load() {
		return o, false
	}
	if signed, is := store.(*asked); is {
		return subprocessOrder{Name: signed.String(), Authority: signed.authority}, true
	}
	o.Store = objects.Location(store)
	return o, o.Store != ""
}

// subprocess makes averages, one after another, and steps back behind all others of this machine: averaging is work for seconds,
// and what decides on reports works for milliseconds. While a process is started, a core of the server's stands still for some of
// these, so one that has averaged goes on with the next average that waits. It ends with the worker.
type subprocess struct {
	cmd    *exec.Cmd
	in     io.Closer
	say    *gob.Encoder
	words  *gob.Decoder
	said   bytes.Buffer // its errors
	behind string       // the control group that it is in
}

func startSubprocess(behind string) (*subprocess, error) {
	var err error
	p := &subprocess{cmd: exec.Command("/proc/self/exe"), behind: behind} // the very program, even if another has its name by now
	if runtime.GOOS != "linux" {
		p.cmd.Path, err = os.Executable()
	}
	p.cmd.Args = []string{averager}
	p.cmd.Stderr = &p.said
	in, inErr := p.cmd.StdinPipe()
	out, outErr := p.cmd.StdoutPipe()
	if err = errors.Join(err, inErr, outErr); err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("average in a process of its own: %w", err)
	}
	p.in, p.say, p.words = in, gob.NewEncoder(in), gob.NewDecoder(out)
	return p, nil
}

// run has an average made. What the process asks for is asked of the store. It is ended with ctx, and where it fails; over says
// that.
func (p *subprocess) run(ctx context.Context, o *subprocessOrder, store objects.Access) (ck *outbidv1.Checkpoint, over bool, err error) {
	if p.behind != "" {
		defer confine.WatchStarvation(p.behind, p.cmd.Process.Pid)()
	}
	stop := context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() }) // if it has ended it has ended
	answer, err := p.converse(ctx, o, store)
	if stop() && err == nil {
		ck, err = answer.checkpoint()
		return ck, false, err
	}
	ended := p.end()
	if ctx.Err() != nil {
		return nil, true, ctx.Err()
	}
	return nil, true, fmt.Errorf("the process that averages ended: %w: %s", errors.Join(ended, err), sanitize.Line(p.said.String(), limits.Detail))
}

// end ends the process, which has nothing to do.
func (p *subprocess) end() error {
	return errors.Join(p.in.Close(), p.cmd.Wait())
}

// converse gives the process its order, answers what it asks, and returns its answer.
func (p *subprocess) converse(ctx context.Context, o *subprocessOrder, store objects.Access) (*subprocessAnswer, error) {
	err := p.say.Encode(workerWord{Order: o})
	for err == nil {
		var w subprocessWord
		if err = p.words.Decode(&w); err != nil {
			break
		}
		if w.Ask == nil {
			return &w.Answer, nil
		}
		right := w.Ask.answer(ctx, store)
		err = p.say.Encode(workerWord{Right: &right})
	}
	return nil, err
}

func (a *subprocessAsk) answer(ctx context.Context, store objects.Access) (r subprocessRight) {
	signed, ok := store.(*asked)
	if !ok {
		r.Failure = failureOf(fmt.Errorf("%w: %s signs nothing", objects.ErrRefused, store))
		return r
	}
	right, err := signed.Sign(ctx, a.Key, a.Write, a.Size)
	return subprocessRight{Signed: right, Name: signed.String(), Failure: failureOf(err)}
}

func (a *subprocessAnswer) checkpoint() (*outbidv1.Checkpoint, error) {
	if err := a.Failure.err(); err != nil {
		return nil, err
	}
	ck := new(outbidv1.Checkpoint)
	if err := proto.Unmarshal(a.Checkpoint, ck); err != nil {
		return nil, fmt.Errorf("what the process that averages said: %w", err)
	}
	return ck, nil
}
