package worker

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// averager is the name (argv[0]) of a process that was started to average; AverageMain recognises it.
const averager = "outbid-average"

// subprocesses is set once AverageMain was called, so that this program can be started again to average.
var subprocesses atomic.Bool //nolint:gochecknoglobals // a property of the program

// AverageMain must be called first in the main function of a program that runs workers. In a process that a worker
// started to average, it computes averages and returns true when the process should exit. Otherwise it returns false.
func AverageMain() bool {
	if os.Args[0] != averager {
		subprocesses.Store(true)
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	orders, rights := make(chan *subprocessOrder), make(chan *signedAccess)
	go func() {
		defer cancel() // this process ends with the worker
		defer close(orders)
		defer close(rights)
		for from := gob.NewDecoder(os.Stdin); ; {
			var said averagerRequest
			if from.Decode(&said) != nil {
				return
			}
			if said.Order != nil {
				orders <- said.Order
			} else {
				rights <- said.Right
			}
		}
	}()
	say := gob.NewEncoder(os.Stdout)
	steppedBack := false
	for o := range orders {
		if !steppedBack {
			stepBack(o.Behind) // which is the same in all later orders
			steppedBack = true
		}
		w := &workerConn{say: say, rights: rights}
		w.answer(o.average(ctx, w))
	}
	return true
}

func (o *subprocessOrder) average(ctx context.Context, w *workerConn) (answer subprocessAnswer) {
	var order outbidv1.Consolidation
	err := proto.Unmarshal(o.Order, &order)
	var store objects.Access
	if err == nil {
		store, err = o.open(ctx, w)
	}
	var ck *outbidv1.Checkpoint
	if err == nil {
		ck, err = averageOnce(ctx, limit(store, o.Rate), &order)
	}
	if err == nil {
		answer.Checkpoint, err = proto.Marshal(ck)
	}
	answer.Failure = failureOf(err)
	return answer
}

// open opens the store, or a store that gets signed access from the worker.
func (o *subprocessOrder) open(ctx context.Context, w *workerConn) (objects.Access, error) {
	if o.Store != "" {
		return objects.Open(ctx, o.Store)
	}
	client, err := storeClient(o.Authority)
	if err != nil {
		return nil, err
	}
	w.store = o.Name
	return &objects.Presigned{Sign: w.sign, Client: client, Name: w.name}, nil
}

// workerConn is the averaging process's connection to its worker.
type workerConn struct {
	rights <-chan *signedAccess // closed when the worker is gone

	asks     sync.Mutex // held from a question to its answer
	say      *gob.Encoder
	answered bool
	mu       sync.Mutex
	store    string // the store's name
}

func (w *workerConn) name() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.store
}

// sign asks the worker for access to an object. The worker asks the server, because this process has no credentials.
func (w *workerConn) sign(_ context.Context, key string, write bool, size int64) (objects.Signed, error) {
	w.asks.Lock()
	defer w.asks.Unlock()
	if w.answered {
		return objects.Signed{}, errors.New("the average is finished")
	}
	if err := w.say.Encode(averagerResponse{Ask: &accessRequest{Key: key, Write: write, Size: size}}); err != nil {
		return objects.Signed{}, fmt.Errorf("ask the worker: %w", err)
	}
	right, ok := <-w.rights // not interrupted, because the next question would get this answer
	if !ok {
		return objects.Signed{}, errors.New("the worker is gone")
	}
	w.mu.Lock()
	w.store = right.Name
	w.mu.Unlock()
	return right.Signed, right.Failure.err()
}

// answer sends the result of an order. Later calls of sign fail, because their answer would be taken for one of the
// next order.
func (w *workerConn) answer(a subprocessAnswer) {
	w.asks.Lock()
	defer w.asks.Unlock()
	w.answered = true
	_ = w.say.Encode(averagerResponse{Answer: a}) // fails only if the worker is gone
}
