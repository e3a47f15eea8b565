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

// NewDecoder implements runtime.Marshaler. It rewrites the decoder's errors for users.
func (m jsonMarshaler) NewDecoder(r io.Reader) runtime.Decoder {
	inner := m.JSONPb.NewDecoder(r)
	return runtime.DecoderFunc(func(v any) error {
		err := inner.Decode(v)
		if secret := secretBody(v); secret != "" && err != nil && !errors.Is(err, io.EOF) {
			return errors.New("body: must be " + secret) // the decoder's error would quote the secret
		}
		return bodyError(err)
	})
}

// secretBody returns the expected body of a request that carries a secret, or "" for other requests.
func secretBody(v any) string {
	switch v.(type) {
	case *outbidv1.SetSecretRequest:
		return `{"value": TEXT}`
	case *outbidv1.JoinWorkerRequest:
		return `{"token": TEXT, "public_key": TEXT}`
	}
	return ""
}

// protojsonPlace matches the beginning of protojson's errors. protojson varies its spaces so that programs do not
// depend on them.
func protojsonPlace() *regexp.Regexp {
	return regexp.MustCompile(`^proto:[\s\x{a0}]+(?:syntax error[\s\x{a0}]+)?\(line (\d+):(\d+)\):[\s\x{a0}]*(.*)$`)
}

func bodyError(err error) error {
	// The gateway handles an empty body.
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	if m := protojsonPlace().FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("body: line %s, column %s: %s", m[1], m[2], m[3])
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fmt.Errorf("body: is too large; at most %d bytes are allowed", large.Limit)
	}
	return fmt.Errorf("body: is not JSON: %w", err)
}

// pathError explains which part of the path should be a number.
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
