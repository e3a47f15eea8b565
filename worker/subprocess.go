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
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint"
	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// averager is what the process is called that averages: AverageMain knows by it what it is.
const averager = "outbid-average"

// subprocesses is set once AverageMain was called: this program may be started again to average.
var subprocesses atomic.Bool //nolint:gochecknoglobals // a property of the program

// subprocessOrder is what the process is to average, and where.
type subprocessOrder struct {
	Store string
	Order []byte
}

// subprocessAnswer is what became of it.
type subprocessAnswer struct {
	Checkpoint []byte
	Failure    string
	// Kinds are which of the errors below the failure is.
	Kinds []int
}

// subprocessErrors are the errors that are told apart by who has something averaged.
func subprocessErrors() []error {
	return []error{
		checkpoint.ErrMismatch, checkpoint.ErrNotFinite, checkpoint.ErrDamaged, checkpoint.ErrWeight, safetensors.ErrFormat,
		objects.ErrUnavailable, objects.ErrFull, objects.ErrNotFound,
	}
}

// averageFailure is what the process says went wrong.
type averageFailure struct {
	text string
	is   []error
}

func (f *averageFailure) Error() string { return f.text }

func (f *averageFailure) Is(target error) bool { return slices.Contains(f.is, target) }

// AverageMain is called first thing in a program that runs workers. It returns true where a worker had started the program to
// average, at the end of that.
func AverageMain() bool {
	if os.Args[0] != averager {
		subprocesses.Store(true)
		return false
	}
	stepBack()
	var o subprocessOrder
	if gob.NewDecoder(os.Stdin).Decode(&o) != nil {
		return true
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the worker
		cancel()
	}()
	answer := o.average(ctx)
	_ = gob.NewEncoder(os.Stdout).Encode(answer) // if the worker is gone nobody listens
	return true
}

func (o *subprocessOrder) average(ctx context.Context) (answer subprocessAnswer) {
	var order outbidv1.Consolidation
	err := proto.Unmarshal(o.Order, &order)
	var store objects.Store
	if err == nil {
		store, err = objects.Open(ctx, o.Store)
	}
	var ck *outbidv1.Checkpoint
	if err == nil {
		ck, err = averageOnce(ctx, store, &order)
	}
	if err == nil {
		answer.Checkpoint, err = proto.Marshal(ck)
	}
	if err != nil {
		answer.Failure = err.Error()
		for k, kind := range subprocessErrors() {
			if errors.Is(err, kind) {
				answer.Kinds = append(answer.Kinds, k)
			}
		}
	}
	return answer
}

// averageInSubprocess makes an average in a process of its own, which steps back behind all others of this machine: averaging is work
// for seconds, and what decides on reports works for milliseconds. The process ends with ctx, and with the worker.
func averageInSubprocess(ctx context.Context, store string, o *outbidv1.Consolidation) (*outbidv1.Checkpoint, error) {
	order, err := proto.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("average in a process of its own: %w", err)
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe") // the very program, even if another has its name by now
	if runtime.GOOS != "linux" {
		cmd.Path, err = os.Executable()
	}
	cmd.Args = []string{averager}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	in, pipeErr := cmd.StdinPipe()
	if err = errors.Join(err, pipeErr); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("average in a process of its own: %w", err)
	}
	err = gob.NewEncoder(in).Encode(subprocessOrder{Store: store, Order: order})
	err = errors.Join(cmd.Wait(), err)
	var answer subprocessAnswer
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if decodeErr := gob.NewDecoder(&out).Decode(&answer); decodeErr != nil {
		return nil, fmt.Errorf("the process that averages ended: %w: %.500s", errors.Join(err, decodeErr), said.String())
	}
	return answer.checkpoint()
}

func (a *subprocessAnswer) checkpoint() (*outbidv1.Checkpoint, error) {
	if a.Failure != "" {
		f := &averageFailure{text: a.Failure}
		for _, k := range a.Kinds {
			f.is = append(f.is, subprocessErrors()[k])
		}
		return nil, f
	}
	ck := new(outbidv1.Checkpoint)
	if err := proto.Unmarshal(a.Checkpoint, ck); err != nil {
		return nil, fmt.Errorf("what the process that averages said: %w", err)
	}
	return ck, nil
}
