package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/identity"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const accessPrefix = "outbid.v1.access."

// answersAtOnce bounds how many requests for access are answered side by side: one may wait for the object store.
const answersAtOnce = 32

// AccessSubject is where a node asks for access to objects.
func AccessSubject(node string) string { return accessPrefix + node }

// RequestAccess asks the orchestrator for access to an object and waits for the answer until ctx ends. ErrNotConnected
// if there is no connection now, nats.ErrNoResponders if no orchestrator leads.
// An answer that check refuses is an error.
func RequestAccess(
	ctx context.Context, nc *nats.Conn, req *outbidv1.AccessRequest, by Signer, check Check,
) (*outbidv1.AccessAnswer, error) {
	if err := CheckToken("node", req.GetNode()); err != nil {
		return nil, err
	}
	if !nc.IsConnected() {
		return nil, ErrNotConnected
	}
	request, err := signedMessage(AccessSubject(req.GetNode()), req, by)
	if err != nil {
		return nil, fmt.Errorf("ask for access: %w", err)
	}
	m, err := nc.RequestMsgWithContext(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("ask the orchestrator for access to %s: %w", req.GetKey(), err)
	}
	// The subject of an answer is made up for its request, so that an answer is good for that alone.
	if !check.signed(m) {
		return nil, fmt.Errorf("ask the orchestrator for access to %s: %w", req.GetKey(), errAnswer)
	}
	answer := new(outbidv1.AccessAnswer)
	if err := proto.Unmarshal(m.Data, answer); err != nil {
		return nil, fmt.Errorf("decode an answer: %w", err)
	}
	return answer, nil
}

// errAnswer says that somebody else than the orchestrator answered.
var errAnswer = errors.New("the answer is not signed by the server that this worker has joined")

// AnswerAccess answers the requests of every node with f, several at once, until Stop, which waits for f to return. Where f returns nil no
// answer is sent. A
// request that check refuses is dropped, and so is one that names another node than its subject, or that wants its
// answer anywhere but in an inbox of its node: the orchestrator may publish where the node may not.
func AnswerAccess(
	nc *nats.Conn, check Check, by Signer, f func(*outbidv1.AccessRequest) *outbidv1.AccessAnswer,
) (*AccessAnswers, error) {
	a := &AccessAnswers{places: make(chan struct{}, answersAtOnce)}
	sub, err := subscribe(nc, accessPrefix+"*", func(m *nats.Msg) {
		req := new(outbidv1.AccessRequest)
		node := strings.TrimPrefix(m.Subject, accessPrefix)
		if !check.signed(m) || proto.Unmarshal(m.Data, req) != nil || node != req.GetNode() || !ownInbox(m.Reply, node) {
			return
		}
		a.places <- struct{}{}
		a.running.Go(func() {
			defer func() { <-a.places }()
			if answer := f(req); answer != nil {
				_ = publish(nc, m.Reply, answer, by) // who hears no answer asks again
			}
		})
	})
	if err != nil {
		return nil, err
	}
	a.sub = sub
	return a, nil
}

// ownInbox says whether a subject is where a node waits for answers: under its own name, or, where NATS has users of
// another kind, as every client of NATS does.
func ownInbox(subject, node string) bool {
	return strings.HasPrefix(subject, identity.InboxPrefix(node)+".") || strings.HasPrefix(subject, nats.InboxPrefix)
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
