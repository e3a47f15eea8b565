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

// fieldError returns an INVALID_ARGUMENT that names the invalid field of the request.
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

// publicError converts a handler's error to the status for the caller. It also returns the level for logging the cause:
// above Debug if the status does not show the cause. ctx is the context of the call.
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
		return slog.LevelDebug, status.Error(codes.NotFound, trimSentinel(err, state.ErrNotFound))
	case errors.Is(err, state.ErrInvalid):
		return slog.LevelDebug, status.Error(codes.InvalidArgument, trimSentinel(err, state.ErrInvalid))
	case errors.Is(err, state.ErrConflict):
		return slog.LevelDebug, status.Error(codes.FailedPrecondition, trimSentinel(err, state.ErrConflict))
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return slog.LevelDebug, status.Error(codes.Canceled, "the call was cancelled")
	case ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		return slog.LevelDebug, status.Error(codes.DeadlineExceeded, "the call took longer than its deadline")
	}
	if level, text := i.unavailable(err); text != "" {
		return level, status.Error(codes.Unavailable, text)
	}
	if errors.Is(err, objects.ErrFull) {
		return slog.LevelError, status.Error(codes.ResourceExhausted, objects.ErrFull.Error()+"; free space and retry")
	}
	return slog.LevelError, internalError(id)
}

// internalError returns the status for a fault of the server.
func internalError(id string) error {
	return status.Errorf(codes.Internal, "internal error; the server's log has it under id %s", id)
}

// unavailable returns the text for an error that passes without a change of the request: the server is stopping, or a
// part that it needs does not answer. It returns "" for other errors. A stopping server closes its parts one by one, so
// afterwards every unrecognised error counts as its stop.
func (i *interceptor) unavailable(err error) (level slog.Level, text string) {
	switch {
	case errors.Is(err, state.ErrStopping):
		return slog.LevelDebug, state.ErrStopping.Error()
	case errors.Is(err, objects.ErrFull):
		return 0, ""
	case errors.Is(err, objects.ErrUnavailable):
		return slog.LevelError, objects.ErrUnavailable.Error() + "; retry later"
	case i.stopping.Err() != nil, errors.Is(err, context.Canceled):
		return slog.LevelInfo, state.ErrStopping.Error()
	case bus.StorageRefused(err):
		level := slog.LevelError
		if bus.Unanswered(err) { // the server may be stopping
			level = slog.LevelWarn
		}
		return level, "NATS takes no writes now; retry later"
	case errors.Is(err, context.DeadlineExceeded):
		return slog.LevelWarn, "a part of the server did not answer in time; retry later"
	case bus.Unanswered(err):
		return slog.LevelWarn, "NATS does not answer; retry later"
	}
	return 0, ""
}

// limitError returns a RESOURCE_EXHAUSTED that names the limit and, if known, when the call may be repeated.
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

// retryTrailer is the delay in milliseconds before a call may be repeated, for clients that do not read a status's
// details.
const retryTrailer = "retry-after-ms"

// setRetryTrailer sends the retry delay of a failed call as a trailer.
func setRetryTrailer(ctx context.Context, err error) {
	for _, d := range status.Convert(err).Details() {
		if retry, ok := d.(*errdetails.RetryInfo); ok {
			_ = grpc.SetTrailer(ctx, metadata.Pairs(retryTrailer, strconv.FormatInt(retry.GetRetryDelay().AsDuration().Milliseconds()+1, 10)))
		}
	}
}

// retryAfter returns the retry delay as the Retry-After header in whole seconds, or "" if it is unknown.
func retryAfter(st *status.Status) string {
	for _, d := range st.Details() {
		if retry, ok := d.(*errdetails.RetryInfo); ok {
			return strconv.FormatInt(max(1, int64(math.Ceil(retry.GetRetryDelay().AsDuration().Seconds()))), 10)
		}
	}
	return ""
}

// specError returns the status for an invalid spec. The field is the path in the spec.
func specError(e *spec.Error) error {
	if e.Field == "" {
		return status.Error(codes.InvalidArgument, e.Error())
	}
	return fieldError(e.Field, "%s", e.Problem)
}

// trimSentinel returns the error's text without the sentinel before or after it, because the status code already says the
// same.
func trimSentinel(err, sentinel error) string {
	text := strings.TrimPrefix(err.Error(), sentinel.Error()+": ")
	return strings.TrimSuffix(text, ": "+sentinel.Error())
}

// jsonError is the format of every error in JSON.
type jsonError struct {
	// Code is the gRPC code, such as "NOT_FOUND".
	Code    string `json:"code"`
	Message string `json:"message"`
	// Field is the invalid field of the request, if there is one.
	Field string `json:"field,omitempty"`
}

// newJSONError returns the JSON form of a status.
func newJSONError(st *status.Status) jsonError {
	e := jsonError{Code: code.Code(st.Code()).String(), Message: st.Message()}
	for _, d := range st.Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok && len(bad.GetFieldViolations()) > 0 {
			e.Field = bad.GetFieldViolations()[0].GetField()
		}
	}
	return e
}
