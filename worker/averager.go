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

// averager is what the process is called that averages: AverageMain knows by it what it is.
const averager = "outbid-average"

// subprocesses is set once AverageMain was called: this program may be started again to average.
var subprocesses atomic.Bool //nolint:gochecknoglobals // a property of the program

// AverageMain is called first thing in a program that runs workers. It returns true where a worker had started the program to
// average, at the end of that.
func AverageMain() bool {
	if os.Args[0] != averager {
		subprocesses.Store(true)
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	orders, rights := make(chan *subprocessOrder), make(chan *subprocessRight)
	go func() {
		defer cancel() // it ends with the worker
		defer close(orders)
		defer close(rights)
		for from := gob.NewDecoder(os.Stdin); ; {
			var said workerWord
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
			stepBack(o.Behind) // which no later order changes
			steppedBack = true
		}
		w := &worksFor{say: say, rights: rights}
		w.answer(o.average(ctx, w))
	}
	return true
}

func (o *subprocessOrder) average(ctx context.Context, w *worksFor) (answer subprocessAnswer) {
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

// open opens the store, or what the worker has signed of it.
func (o *subprocessOrder) open(ctx context.Context, w *worksFor) (objects.Access, error) {
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

// worksFor is the worker, as the process that averages for it sees it.
type worksFor struct {
	rights <-chan *subprocessRight // closed when the worker is gone

	asks     sync.Mutex // held from a question to its answer
	say      *gob.Encoder
	answered bool
	mu       sync.Mutex
	store    string // its name
}

func (w *worksFor) name() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.store
}

// sign asks the worker for the right to an object, which the worker asks the server for: this process has no key.
func (w *worksFor) sign(_ context.Context, key string, write bool, size int64) (objects.Signed, error) {
	w.asks.Lock()
	defer w.asks.Unlock()
	if w.answered {
		return objects.Signed{}, errors.New("the average is over")
	}
	if err := w.say.Encode(subprocessWord{Ask: &subprocessAsk{Key: key, Write: write, Size: size}}); err != nil {
		return objects.Signed{}, fmt.Errorf("ask the worker: %w", err)
	}
	right, ok := <-w.rights // whatever ends meanwhile: it would else be taken for the next question's
	if !ok {
		return objects.Signed{}, errors.New("the worker is gone")
	}
	w.mu.Lock()
	w.store = right.Name
	w.mu.Unlock()
	return right.Signed, right.Failure.err()
}

// answer ends what is done for the worker by one order: whoever still asks then would be answered as of the next.
func (w *worksFor) answer(a subprocessAnswer) {
	w.asks.Lock()
	defer w.asks.Unlock()
	w.answered = true
	_ = w.say.Encode(subprocessWord{Answer: a}) // if the worker is gone nobody listens
}
