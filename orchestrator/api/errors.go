package api

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/state"
)

// fieldError is an INVALID_ARGUMENT that names the field of the request which is wrong.
func fieldError(field, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	st := status.New(codes.InvalidArgument, field+": "+text)
	with, err := st.WithDetails(&errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: text}},
	})
	if err != nil {
		return st.Err()
	}
	return with.Err()
}

// publicError turns what a handler returned into the status that the caller sees. ours is true if the
// cause must be logged, because the caller is not shown it.
func publicError(err error, id string) (ours bool, shown error) {
	if st, ok := status.FromError(err); ok {
		return false, st.Err()
	}
	if wrong, ok := errors.AsType[*spec.Error](err); ok {
		return false, specError(wrong)
	}
	switch {
	case errors.Is(err, state.ErrNotFound):
		return false, status.Error(codes.NotFound, without(err, state.ErrNotFound))
	case errors.Is(err, state.ErrInvalid):
		return false, status.Error(codes.InvalidArgument, without(err, state.ErrInvalid))
	case errors.Is(err, state.ErrConflict):
		return false, status.Error(codes.FailedPrecondition, without(err, state.ErrConflict))
	case errors.Is(err, objects.ErrFull):
		return true, status.Error(codes.ResourceExhausted, objects.ErrFull.Error()+"; make room and try again")
	case errors.Is(err, objects.ErrUnavailable):
		return true, status.Error(codes.Unavailable, objects.ErrUnavailable.Error()+"; try again later")
	case errors.Is(err, context.Canceled):
		return false, status.Error(codes.Canceled, "the call was cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		return false, status.Error(codes.DeadlineExceeded, "the call took longer than its deadline")
	}
	return true, status.Errorf(codes.Internal, "internal error; the server's log has it under id %s", id)
}

// specError is what is wrong with a spec; its field is the spec's own path.
func specError(e *spec.Error) error {
	if e.Field == "" {
		return status.Error(codes.InvalidArgument, e.Error())
	}
	return fieldError(e.Field, "%s", e.Problem)
}

// without is the error's text without the sentinel before or after it, which says nothing that the code does not.
func without(err, sentinel error) string {
	text := strings.TrimPrefix(err.Error(), sentinel.Error()+": ")
	return strings.TrimSuffix(text, ": "+sentinel.Error())
}

// jsonError is the one shape of an error in JSON.
type jsonError struct {
	// Code is gRPC's, such as "NOT_FOUND".
	Code    string `json:"code"`
	Message string `json:"message"`
	// Field of the request that is wrong, where there is one.
	Field string `json:"field,omitempty"`
}

// newJSONError describes a status for readers of JSON.
func newJSONError(st *status.Status) jsonError {
	e := jsonError{Code: code.Code(st.Code()).String(), Message: st.Message()}
	for _, d := range st.Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok && len(bad.GetFieldViolations()) > 0 {
			e.Field = bad.GetFieldViolations()[0].GetField()
		}
	}
	return e
}
