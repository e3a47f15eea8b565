package worker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Store is where a fork's function and its checkpoints are.
type Store func(fork *outbidv1.ForkRef) objects.Access

// Direct is a store that the worker reaches by itself, whatever fork it is for: one in its own process, or one whose
// credentials it was given.
func Direct(store objects.Access) Store {
	return func(*outbidv1.ForkRef) objects.Access { return store }
}

// answerPatience is how long an answer to a request for access may take.
const answerPatience = 10 * time.Second

// Asking is a store that the worker has no credentials of: for every object it asks the orchestrator over NATS, which
// signs for the objects of the forks that the node has. It needs of the link the connection, who asks, and how answers are
// checked. Servers' certificates are checked in the system's way; authority, in PEM, is trusted beside those of the system.
func Asking(l Link, authority []byte) (Store, error) {
	client, err := storeClient(authority)
	if err != nil {
		return nil, err
	}
	a := &asking{Link: l, name: "of the server"}
	return func(fork *outbidv1.ForkRef) objects.Access {
		sign := func(ctx context.Context, key string, write bool, size int64) (objects.Signed, error) {
			return a.sign(ctx, &outbidv1.AccessRequest{Node: l.Who.Node, Fork: fork, Key: key, Write: write, Bytes: size})
		}
		return &asked{Presigned: &objects.Presigned{Sign: sign, Client: client, Name: a.String}, authority: authority}
	}, nil
}

// asked is what a fork's worker reaches by asking.
type asked struct {
	*objects.Presigned
	authority []byte
}

// storeClient is how signed objects are reached. authority is trusted beside those of the system; nil for none.
func storeClient(authority []byte) (*http.Client, error) {
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute,
		DialContext:           (&net.Dialer{Timeout: answerPatience, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   answerPatience,
		ResponseHeaderTimeout: 2 * time.Minute, // a store syncs a large object before it answers
	}
	if authority != nil {
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		if !roots.AppendCertsFromPEM(authority) {
			return nil, errors.New("the authority of the server's certificate: it holds no PEM certificate")
		}
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	}
	return &http.Client{Transport: transport}, nil
}

// asking asks for a node.
type asking struct {
	Link

	mu   sync.Mutex
	name string
}

// String is the store's name, once an answer has told it.
func (a *asking) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.name
}

func (a *asking) sign(ctx context.Context, req *outbidv1.AccessRequest) (objects.Signed, error) {
	patient, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	answer, err := bus.RequestAccess(patient, a.NC, req, a.Who.Key(), a.Check)
	switch {
	case err != nil && ctx.Err() != nil:
		return objects.Signed{}, ctx.Err()
	case bus.Unanswered(err):
		return objects.Signed{}, fmt.Errorf("%w: no orchestrator answers: %w", objects.ErrUnavailable, err)
	case err != nil:
		return objects.Signed{}, err
	}
	if name := answer.GetStore(); name != "" {
		a.mu.Lock()
		a.name = name
		a.mu.Unlock()
	}
	switch {
	case answer.GetRefused() != "":
		return objects.Signed{}, fmt.Errorf("%w: %s", objects.ErrRefused, answer.GetRefused())
	case answer.GetUnavailable() != "":
		return objects.Signed{}, fmt.Errorf("%w: %s", objects.ErrUnavailable, answer.GetUnavailable())
	}
	o := answer.GetObject()
	signed := objects.Signed{
		Parts: o.GetParts(), PartBytes: o.GetPartBytes(), Complete: o.GetComplete(), Abort: o.GetAbort(),
	}
	signed.URL, err = reachable(o.GetUrl(), a.NC.ConnectedUrl())
	return signed, err
}

// reachable is a URL as this machine reaches it: a server that listens on every address is where its NATS is, as only
// the NATS inside a server comes with such a URL.
func reachable(target, natsURL string) (string, error) {
	u, err := url.Parse(target)
	if err != nil || target == "" {
		return target, err
	}
	ip := net.ParseIP(u.Hostname())
	host := hostOf(natsURL)
	if !objects.FromHandler(u) || ip == nil || host == "" {
		return target, nil
	}
	near := net.ParseIP(host)
	local := host == "localhost" || near != nil && near.IsLoopback()
	switch {
	case ip.IsUnspecified():
		u.Host = net.JoinHostPort(host, u.Port())
	case ip.IsLoopback() && !local:
		return "", errors.Join(objects.ErrRefused, fmt.Errorf("the server keeps checkpoints in a directory and hands them out "+
			"over its API, which listens on %s only: start it with --api on an address that this machine reaches, or with "+
			"--store s3://bucket/prefix?endpoint=URL", u.Host))
	}
	return u.String(), nil
}

// hostOf is the host that a URL names; "" if it names none.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Hostname()
}
