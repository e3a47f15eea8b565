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

// averagerRequest is a message to the process: what to average next, or the signed access that it requested. It is sent
// over a pipe, because other users can see a command line, and signed URLs are secrets.
type averagerRequest struct {
	Order *subprocessOrder
	Right *signedAccess
}

// subprocessOrder describes an average for the process, and its store.
type subprocessOrder struct {
	// Store is the location that the process opens by itself. If it is empty, the process requests signed access to
	// each object of the store called Name from the worker, and trusts servers with certificates signed by Authority
	// in addition to the authorities of the system.
	Store, Name string
	Authority   []byte
	Order       []byte
	// Behind is the directory of the idle control group that the process moves to, or "" if it does not exist.
	Behind string
	// Rate limits the bytes a second that the process may read; 0 means no limit.
	Rate int64
}

// averagerResponse is a message from the process: a request for access to an object, or finally its answer.
type averagerResponse struct {
	Ask    *accessRequest
	Answer subprocessAnswer
}

// accessRequest requests access to read an object, or to write one of Size bytes.
type accessRequest struct {
	Key   string
	Write bool
	Size  int64
}

// signedAccess is the worker's answer to an accessRequest, with the name of the store.
type signedAccess struct {
	Signed  objects.Signed
	Name    string
	Failure subprocessFailure
}

// subprocessAnswer is the result of the average.
type subprocessAnswer struct {
	Checkpoint []byte
	Failure    subprocessFailure
}

// subprocessFailure is an error in a form that can be sent between the two processes. An empty text means nil.
type subprocessFailure struct {
	Text string
	// Kinds are the indexes of the errors in subprocessErrors that the error wraps.
	Kinds []int
}

// subprocessErrors returns the errors that callers of Average distinguish with errors.Is.
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

// averageFailure is an error that was received from the other process.
type averageFailure struct {
	text string
	is   []error
}

func (f *averageFailure) Error() string { return f.text }

func (f *averageFailure) Is(target error) bool { return slices.Contains(f.is, target) }

// subprocessOrderFor returns how another process reaches a store, or false if it cannot.
func subprocessOrderFor(store objects.Access) (o subprocessOrder, ok bool) {
	if !subprocesses.Load() {
		return o, false
	}
	if signed, is := store.(*asked); is {
		return subprocessOrder{Name: signed.String(), Authority: signed.authority}, true
	}
	o.Store = objects.Location(store)
	return o, o.Store != ""
}

// subprocess computes averages one after another, at a lower priority than everything else on this machine: an
// average takes seconds, while the decisions on reports take milliseconds. Starting a process blocks a core of the
// server for several milliseconds, so a process that has finished an average continues with the next one that waits.
// It ends with the worker.
type subprocess struct {
	cmd       *exec.Cmd
	in        io.Closer
	encoder   *gob.Encoder
	decoder   *gob.Decoder
	stderr    bytes.Buffer // its stderr
	idleGroup string       // its control group
}

func startSubprocess(behind string) (*subprocess, error) {
	var err error
	p := &subprocess{cmd: exec.Command("/proc/self/exe"), idleGroup: behind} // this program, even if the file was replaced meanwhile
	if runtime.GOOS != "linux" {
		p.cmd.Path, err = os.Executable()
	}
	p.cmd.Args = []string{averager}
	p.cmd.Stderr = &p.stderr
	in, inErr := p.cmd.StdinPipe()
	out, outErr := p.cmd.StdoutPipe()
	if err = errors.Join(err, inErr, outErr); err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start the averaging process: %w", err)
	}
	p.in, p.encoder, p.decoder = in, gob.NewEncoder(in), gob.NewDecoder(out)
	return p, nil
}

// run computes an average and gives the process the access to the store that it requests. The process is killed when
// ctx ends or on failure; over reports whether it has ended.
func (p *subprocess) run(ctx context.Context, o *subprocessOrder, store objects.Access) (ck *outbidv1.Checkpoint, over bool, err error) {
	if p.idleGroup != "" {
		defer confine.WatchStarvation(p.idleGroup, p.cmd.Process.Pid)()
	}
	stop := context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() }) // fails only if the process has ended already
	answer, err := p.converse(ctx, o, store)
	if stop() && err == nil {
		ck, err = answer.checkpoint()
		return ck, false, err
	}
	ended := p.end()
	if ctx.Err() != nil {
		return nil, true, ctx.Err()
	}
	return nil, true, fmt.Errorf("the averaging process ended: %w: %s", errors.Join(ended, err), sanitize.Line(p.stderr.String(), limits.Detail))
}

// end ends an idle process.
func (p *subprocess) end() error {
	return errors.Join(p.in.Close(), p.cmd.Wait())
}

// converse sends the process its order, answers its requests for access, and returns its answer.
func (p *subprocess) converse(ctx context.Context, o *subprocessOrder, store objects.Access) (*subprocessAnswer, error) {
	err := p.encoder.Encode(averagerRequest{Order: o})
	for err == nil {
		var w averagerResponse
		if err = p.decoder.Decode(&w); err != nil {
			break
		}
		if w.Ask == nil {
			return &w.Answer, nil
		}
		right := w.Ask.answer(ctx, store)
		err = p.encoder.Encode(averagerRequest{Right: &right})
	}
	return nil, err
}

func (a *accessRequest) answer(ctx context.Context, store objects.Access) (r signedAccess) {
	signed, ok := store.(*asked)
	if !ok {
		r.Failure = failureOf(fmt.Errorf("%w: %s does not support signed access", objects.ErrRefused, store))
		return r
	}
	right, err := signed.Sign(ctx, a.Key, a.Write, a.Size)
	return signedAccess{Signed: right, Name: signed.String(), Failure: failureOf(err)}
}

func (a *subprocessAnswer) checkpoint() (*outbidv1.Checkpoint, error) {
	if err := a.Failure.err(); err != nil {
		return nil, err
	}
	ck := new(outbidv1.Checkpoint)
	if err := proto.Unmarshal(a.Checkpoint, ck); err != nil {
		return nil, fmt.Errorf("decode the answer of the averaging process: %w", err)
	}
	return ck, nil
}
