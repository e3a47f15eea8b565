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

// Store returns the access to the function and the checkpoints of a fork.
type Store func(fork *outbidv1.ForkRef) objects.Access

// Direct returns a Store that the worker reaches by itself for every fork, because the store is in the worker's
// process or the worker has its credentials.
func Direct(store objects.Access) Store {
	return func(*outbidv1.ForkRef) objects.Access { return store }
}

// answerPatience is how long the answer to a request for access may take.
const answerPatience = 10 * time.Second

// Asking returns a Store for a worker without store credentials. For every object it asks the orchestrator over NATS,
// which signs URLs for the objects of the node's forks. It uses the link's connection, credentials and check of
// answers. The certificates of servers are verified against the system's authorities and authority, in PEM.
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

// asked is the access of one fork through an Asking store.
type asked struct {
	*objects.Presigned
	authority []byte
}

// storeClient returns the HTTP client for signed objects. authority is trusted in addition to the system's
// authorities; nil adds none.
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
			return nil, errors.New("the authority of the server's certificate: must be a certificate in PEM")
		}
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	}
	return &http.Client{Transport: transport}, nil
}

// asking requests signed access for the objects of a node's forks.
type asking struct {
	Link

	mu   sync.Mutex
	name string
}

// String returns the store's name, known from the first answer on.
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

// reachable returns a URL that this machine can reach. If the server listens on all addresses, the host of its NATS
// replaces the unspecified address: only a server with NATS inside sends such a URL.
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

// hostOf returns the host in a URL, or "" if the URL has no host.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Hostname()
}
