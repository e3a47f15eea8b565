package api

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// NewDecoder implements runtime.Marshaler: what is wrong with a body is said in words for whoever wrote it.
func (m jsonMarshaler) NewDecoder(r io.Reader) runtime.Decoder {
	inner := m.JSONPb.NewDecoder(r)
	return runtime.DecoderFunc(func(v any) error {
		err := inner.Decode(v)
		if secret := secretBody(v); secret != "" && err != nil && !errors.Is(err, io.EOF) {
			return errors.New("body: must be " + secret) // an error of the decoder quotes what it cannot read
		}
		return bodyError(err)
	})
}

// secretBody returns what the body of a request that carries a secret must be, or "" for other requests.
func secretBody(v any) string {
	switch v.(type) {
	case *outbidv1.SetSecretRequest:
		return `{"value": TEXT}`
	case *outbidv1.JoinWorkerRequest:
		return `{"token": TEXT, "public_key": TEXT}`
	}
	return ""
}

// protojsonPlace is how protojson begins an error; it varies its spaces so that nobody relies on them.
func protojsonPlace() *regexp.Regexp {
	return regexp.MustCompile(`^proto:[\s\x{a0}]+(?:syntax error[\s\x{a0}]+)?\(line (\d+):(\d+)\):[\s\x{a0}]*(.*)$`)
}

func bodyError(err error) error {
	// An empty body is the gateway's own matter.
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	if m := protojsonPlace().FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("body: line %s, column %s: %s", m[1], m[2], m[3])
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fmt.Errorf("body: is too large; %d bytes are the most", large.Limit)
	}
	return fmt.Errorf("body: is not JSON: %w", err)
}

// pathError says what is wrong with a part of the path that is to be a number.
func pathError(err error) error {
	st, ok := status.FromError(err)
	if !ok || st.Code() != codes.InvalidArgument {
		return err
	}
	mismatch := regexp.MustCompile(`^type mismatch, parameter: (\w+), error: .*parsing ("[^"]*"): .*$`)
	if m := mismatch.FindStringSubmatch(st.Message()); m != nil {
		return fieldError(m[1], "%s is not a whole number, or too large", m[2])
	}
	return err
}
