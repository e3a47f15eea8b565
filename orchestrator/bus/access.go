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

// answersAtOnce limits how many requests for access are handled concurrently, because each may wait for the object
// store.
const answersAtOnce = 32

// AccessSubject returns the subject on which a node requests access to objects.
func AccessSubject(node string) string { return accessPrefix + node }

// RequestAccess asks the server for access to an object, and waits for the answer until ctx ends. It returns
// ErrNotConnected without a connection, nats.ErrNoResponders if no server leads, and an error if check rejects the
// answer.
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
		return nil, fmt.Errorf("ask the server for access to %s: %w", req.GetKey(), err)
	}
	// The reply subject is unique for the request, so an answer is valid only for this request.
	if !check.signed(m) {
		return nil, fmt.Errorf("ask the server for access to %s: %w", req.GetKey(), errAnswer)
	}
	answer := new(outbidv1.AccessAnswer)
	if err := proto.Unmarshal(m.Data, answer); err != nil {
		return nil, fmt.Errorf("decode an answer: %w", err)
	}
	return answer, nil
}

// errAnswer means that the answer did not come from the server.
var errAnswer = errors.New("the answer is not signed by the server that this worker has joined")

// AnswerAccess answers the requests of all nodes with f, several concurrently, until Stop, which waits for f to return.
// If f returns nil it sends no answer. It drops requests that check rejects, that name another node than their subject,
// or whose reply subject is not an inbox of their node: the server may publish where the node may not.
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
				_ = publish(nc, m.Reply, answer, by) // without an answer the node asks again
			}
		})
	})
	if err != nil {
		return nil, err
	}
	a.sub = sub
	return a, nil
}

// ownInbox reports whether a subject is a reply inbox of a node: under the node's name, or, if NATS has other kinds of
// users, NATS's default prefix.
func ownInbox(subject, node string) bool {
	return strings.HasPrefix(subject, identity.InboxPrefix(node)+".") || strings.HasPrefix(subject, nats.InboxPrefix)
}

// AccessAnswers answers requests until Stop.
type AccessAnswers struct {
	sub     *Subscription
	places  chan struct{}
	running sync.WaitGroup
}

// Stop stops answering, and waits for running answers.
func (a *AccessAnswers) Stop() error {
	err := a.sub.Stop()
	a.running.Wait()
	return err
}

// Unanswered reports whether a request failed for lack of a connection or of a leader.
func Unanswered(err error) bool {
	return errors.Is(err, ErrNotConnected) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, context.DeadlineExceeded)
}
