package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/oidc/saved"
	"github.com/outbid-dev/outbid/orchestrator/server"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// connection is a client of a server.
type connection struct {
	outbidv1.OutbidServiceClient
	target target
	conn   *grpc.ClientConn
	// held is a locked file that keeps a server running that stops with its last client.
	held *os.File
}

func (c *connection) close() {
	_ = c.conn.Close()
	if c.held != nil {
		_ = c.held.Close()
	}
}

// connect finds the server and creates a client. It sends nothing; the first call shows whether the server answers.
func (cl *client) connect() (*connection, error) {
	t, err := cl.findServer()
	if err != nil {
		return nil, err
	}
	conn, err := dial(t, cl.caFile(), func() { cl.notef("on %s:", t.where()) })
	if err != nil {
		return nil, err
	}
	c := &connection{OutbidServiceClient: outbidv1.NewOutbidServiceClient(conn), target: t, conn: conn}
	if t.passing {
		c.held = server.Hold(t.data)
	}
	return c, nil
}

// changesWhatExists reports whether a method of the API ends, removes or replaces something. Unknown methods count as
// changes.
func changesWhatExists(method string) bool {
	name := method[strings.LastIndexByte(method, '/')+1:]
	return !slices.ContainsFunc([]string{
		"Ask", "Explain", "Extend", "Get", "Join", "List", "New", "Preview", "Put", "Read", "Stream", "Submit", "Tell", "Watch",
	}, func(verb string) bool { return strings.HasPrefix(name, verb) })
}

// dial creates the gRPC connection for a server's URL. It calls name after each call that changed something, to tell
// the user which server that was.
func dial(t target, caFile string, name func()) (*grpc.ClientConn, error) {
	u, err := url.Parse(t.url)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, badInput("server URL %q (from %s): want http://HOST:PORT or https://HOST:PORT", t.url, t.from)
	}
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	creds := insecure.NewCredentials()
	if u.Scheme == "https" {
		if creds, err = tlsCredentials(caFile); err != nil {
			return nil, err
		}
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(256 << 20)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		// A follower notices a dead link to the server within half a minute.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			err := invoke(ctx, method, req, reply, cc, opts...)
			if err == nil && changesWhatExists(method) {
				name()
			}
			return t.explain(err)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn,
			method string, streamer grpc.Streamer, opts ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			stream, err := streamer(ctx, desc, cc, method, opts...)
			if err != nil {
				return nil, t.explain(err)
			}
			return explainedStream{stream, t}, nil
		}),
	}
	if t.token != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(bearer{t.token, u.Scheme == "https"}))
	} else if t.signIn != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(signedIn{t.signIn, u.Scheme == "https"}))
	}
	return grpc.NewClient("dns:///"+host, opts...)
}

// tlsCredentials trusts the system's authorities, or only the one in caFile.
func tlsCredentials(caFile string) (credentials.TransportCredentials, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, badInput("--ca: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, badInput("--ca %s does not contain a PEM certificate", caFile)
		}
	}
	return credentials.NewTLS(conf), nil
}

// bearer sends the token with every call.
type bearer struct {
	token  string
	secure bool
}

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

// RequireTransportSecurity prevents sending the token for a TLS server unencrypted.
func (b bearer) RequireTransportSecurity() bool { return b.secure }

// signedIn sends the token of 'outbid login', and refreshes it when it expires.
type signedIn struct {
	path   string
	secure bool
}

func (s signedIn) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := saved.Token(ctx, s.path, time.Now)
	if err != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity prevents sending the token for a TLS server unencrypted.
func (s signedIn) RequireTransportSecurity() bool { return s.secure }

// explainedStream explains a stream's errors as dial's interceptor explains those of unary calls.
type explainedStream struct {
	grpc.ClientStream
	target target
}

func (s explainedStream) RecvMsg(m any) error { return s.target.explain(s.ClientStream.RecvMsg(m)) }

// explain adds advice to an error: for a server that cannot be reached, or that requires a token.
func (t target) explain(err error) error {
	s, ok := grpcStatus(err)
	if !ok {
		return err
	}
	switch {
	case s.Code() == codes.Unavailable && lostConnection(s.Message()):
		return &exitError{code: exitUnreachable, msg: t.unreachable(s.Message()), err: err}
	case s.Code() == codes.Unauthenticated && t.signIn != "":
		return &exitError{code: exitFailed, msg: s.Message() + " (run 'outbid login' to sign in again)", err: err}
	case s.Code() == codes.Unauthenticated && t.token == "":
		return &exitError{code: exitFailed, msg: fmt.Sprintf("%s (the server at %s requires a token: give --token-file FILE "+
			"or set OUTBID_TOKEN, or run 'outbid login' if it has an identity provider)", s.Message(), t.url), err: err}
	case s.Code() == codes.Unimplemented:
		return &exitError{code: exitFailed, msg: fmt.Sprintf("the server at %s does not support this call: is it an older "+
			"version? 'outbid doctor' compares them (%s)", t.url, s.Message()), err: err}
	default:
		return err
	}
}

// unreachable returns a message that no server answers, with advice.
func (t target) unreachable(detail string) string {
	if strings.Contains(detail, "tls:") || strings.Contains(detail, "x509:") {
		return fmt.Sprintf("cannot trust the server at %s: %s (give its authority with --ca FILE)", t.url, lastPart(detail))
	}
	preface := strings.Contains(detail, "server preface")
	if preface && strings.Contains(detail, "use of closed network connection") || strings.Contains(detail, "handshake failed: context deadline") { // gRPC gave up
		return fmt.Sprintf("the server at %s accepts connections but does not answer: look at its log, and restart it", t.url)
	}
	if strings.HasPrefix(t.url, "http://") && preface {
		return fmt.Sprintf("the server at %s does not accept unencrypted connections: if it is an Outbid server with a certificate, "+
			"use --server https://%s", t.url, strings.TrimPrefix(t.url, "http://"))
	}
	hint := "start one with 'outbid up', or name another with --server URL"
	if t.from != "the default" {
		hint = fmt.Sprintf("the address is from %s; start a server with 'outbid up', or name another with --server URL", t.from)
	}
	return fmt.Sprintf("no server answers at %s: %s", t.url, hint)
}

// lostConnection distinguishes gRPC's own connection errors from a server that is unavailable.
func lostConnection(message string) bool {
	for _, sign := range []string{
		"connection error", "error reading", "transport is closing", "name resolver", "no such host",
		"connection refused", "closing transport", "keepalive", "connection reset", "EOF", "server preface",
	} {
		if strings.Contains(message, sign) {
			return true
		}
	}
	return false
}

// lastPart returns the innermost of gRPC's nested messages.
func lastPart(message string) string {
	if i := strings.LastIndex(message, "desc = "); i >= 0 {
		message = message[i+len("desc = "):]
	}
	return strings.Trim(message, `"`)
}

// unreachableError reports whether an error means that no server answers.
func unreachableError(err error) bool {
	exit, ok := errors.AsType[*exitError](err)
	return ok && exit.code == exitUnreachable || isCode(err, codes.Unavailable)
}
