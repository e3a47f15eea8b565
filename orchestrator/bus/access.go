package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const accessPrefix = "outbid.v1.access."

// answersAtOnce bounds how many requests for access are answered side by side: one may wait for the object store.
const answersAtOnce = 32

// AccessSubject is where a node asks for access to objects.
func AccessSubject(node string) string { return accessPrefix + node }

// RequestAccess asks the orchestrator for access to an object and waits for the answer until ctx ends. ErrNotConnected
// if there is no connection now, nats.ErrNoResponders if no orchestrator leads.
func RequestAccess(ctx context.Context, nc *nats.Conn, req *outbidv1.AccessRequest) (*outbidv1.AccessAnswer, error) {
	if err := CheckToken("node", req.GetNode()); err != nil {
		return nil, err
	}
	if !nc.IsConnected() {
		return nil, ErrNotConnected
	}
	data, err := proto.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("encode a request for access: %w", err)
	}
	m, err := nc.RequestWithContext(ctx, AccessSubject(req.GetNode()), data)
	if err != nil {
		return nil, fmt.Errorf("ask the orchestrator for access to %s: %w", req.GetKey(), err)
	}
	answer := new(outbidv1.AccessAnswer)
	if err := proto.Unmarshal(m.Data, answer); err != nil {
		return nil, fmt.Errorf("decode an answer: %w", err)
	}
	return answer, nil
}

// AnswerAccess answers the requests of every node with f, several at once, until Stop, which waits for f to return. A
// request that names another node than its subject is dropped.
func AnswerAccess(nc *nats.Conn, f func(*outbidv1.AccessRequest) *outbidv1.AccessAnswer) (*AccessAnswers, error) {
	a := &AccessAnswers{places: make(chan struct{}, answersAtOnce)}
	sub, err := subscribe(nc, accessPrefix+"*", func(m *nats.Msg) {
		req := new(outbidv1.AccessRequest)
		if proto.Unmarshal(m.Data, req) != nil || strings.TrimPrefix(m.Subject, accessPrefix) != req.GetNode() || m.Reply == "" {
			return
		}
		a.places <- struct{}{}
		a.running.Go(func() {
			defer func() { <-a.places }()
			if data, err := proto.Marshal(f(req)); err == nil {
				_ = m.Respond(data) // who hears no answer asks again
			}
		})
	})
	if err != nil {
		return nil, err
	}
	a.sub = sub
	return a, nil
}

// AccessAnswers answers until Stop.
type AccessAnswers struct {
	sub     *Subscription
	places  chan struct{}
	running sync.WaitGroup
}

// Stop ends it and waits.
func (a *AccessAnswers) Stop() error {
	err := a.sub.Stop()
	a.running.Wait()
	return err
}

// Unanswered says whether a request was not answered for lack of a connection or of a leading orchestrator.
func Unanswered(err error) bool {
	return errors.Is(err, ErrNotConnected) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, context.DeadlineExceeded)
}
