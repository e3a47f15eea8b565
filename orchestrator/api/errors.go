package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/outbid-dev/outbid/orchestrator/bus"
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

// publicError turns what a handler returned into the status that the caller sees, and says at which level it is logged with its
// cause: above Debug where the caller is not shown the cause. ctx is the call's.
func (i *interceptor) publicError(ctx context.Context, err error, id string) (slog.Level, error) {
	if st, ok := status.FromError(err); ok {
		return slog.LevelDebug, st.Err()
	}
	if wrong, ok := errors.AsType[*spec.Error](err); ok {
		return slog.LevelDebug, specError(wrong)
	}
	if limit, ok := errors.AsType[*state.LimitError](err); ok {
		return slog.LevelInfo, limitError(limit)
	}
	switch {
	case errors.Is(err, state.ErrNotFound):
		return slog.LevelDebug, status.Error(codes.NotFound, without(err, state.ErrNotFound))
	case errors.Is(err, state.ErrInvalid):
		return slog.LevelDebug, status.Error(codes.InvalidArgument, without(err, state.ErrInvalid))
	case errors.Is(err, state.ErrConflict):
		return slog.LevelDebug, status.Error(codes.FailedPrecondition, without(err, state.ErrConflict))
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return slog.LevelDebug, status.Error(codes.Canceled, "the call was cancelled")
	case ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		return slog.LevelDebug, status.Error(codes.DeadlineExceeded, "the call took longer than its deadline")
	}
	if level, text := i.unavailable(err); text != "" {
		return level, status.Error(codes.Unavailable, text)
	}
	if errors.Is(err, objects.ErrFull) {
		return slog.LevelError, status.Error(codes.ResourceExhausted, objects.ErrFull.Error()+"; make room and try again")
	}
	return slog.LevelError, internalError(id)
}

// internalError is what the caller is told of a fault of the server.
func internalError(id string) error {
	return status.Errorf(codes.Internal, "internal error; the server's log has it under id %s", id)
}

// unavailable returns what the caller is told of an error that will pass without a change of the request: the server ends,
// or a part that it needs does not answer. It returns "" for other errors. A server that ends closes its parts one after the other,
// so that every error without another meaning counts as its end from then on.
func (i *interceptor) unavailable(err error) (level slog.Level, text string) {
	switch {
	case errors.Is(err, state.ErrStopping):
		return slog.LevelDebug, state.ErrStopping.Error()
	case errors.Is(err, objects.ErrFull):
		return 0, ""
	case errors.Is(err, objects.ErrUnavailable):
		return slog.LevelError, objects.ErrUnavailable.Error() + "; try again later"
	case i.stopping.Err() != nil, errors.Is(err, context.Canceled):
		return slog.LevelInfo, state.ErrStopping.Error()
	case bus.StorageRefused(err):
		level := slog.LevelError
		if bus.Unanswered(err) { // it may just be ending
			level = slog.LevelWarn
		}
		return level, "NATS takes no writes now; try again later"
	case errors.Is(err, context.DeadlineExceeded):
		return slog.LevelWarn, "a part of the server did not answer in time; try again later"
	case bus.Unanswered(err):
		return slog.LevelWarn, "NATS does not answer; try again later"
	}
	return 0, ""
}

// limitError is a RESOURCE_EXHAUSTED that names the limit, and says when the call may be made again if that is known.
func limitError(e *state.LimitError) error {
	st := status.New(codes.ResourceExhausted, e.Error())
	details := []protoadapt.MessageV1{&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
		Subject: "tenant:" + e.Tenant, Description: e.Limit,
	}}}}
	if e.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)})
	}
	with, err := st.WithDetails(details...)
	if err != nil {
		return st.Err()
	}
	return with.Err()
}

// retryTrailer says in how many milliseconds a call may be made again, for clients that do not read a status's details.
const retryTrailer = "retry-after-ms"

// setRetryTrailer has a call that failed say when it may be made again.
func setRetryTrailer(ctx context.Context, err error) {
	for _, d := range status.Convert(err).Details() {
		if retry, ok := d.(*errdetails.RetryInfo); ok {
			_ = grpc.SetTrailer(ctx, metadata.Pairs(retryTrailer, strconv.FormatInt(retry.GetRetryDelay().AsDuration().Milliseconds()+1, 10)))
		}
	}
}

// retryAfter is in how many whole seconds a call may be made again, as an HTTP header; "" if nobody knows.
func retryAfter(st *status.Status) string {
	for _, d := range st.Details() {
		if retry, ok := d.(*errdetails.RetryInfo); ok {
			return strconv.FormatInt(max(1, int64(math.Ceil(retry.GetRetryDelay().AsDuration().Seconds()))), 10)
		}
	}
	return ""
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
