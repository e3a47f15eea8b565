package api

import (
	"context"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/spec"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// yamlType is the media type of a sweep's file as the body of a request (RFC 9512).
const yamlType = "application/yaml"

// fileCall is a call of the API with the spec of a file. Other fields of its request are query parameters.
type fileCall func(context.Context, *outbidv1.SweepSpec, *http.Request) (proto.Message, error)

// yamlSpec answers a request whose body is a sweep's file. Other bodies go to next. Errors have the line in the file.
func yamlSpec(next *runtime.ServeMux, method string, call fileCall) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Content-Type") != yamlType {
			next.ServeHTTP(w, r)
			return
		}
		answer, err := callWithFile(next, method, call, r)
		if err != nil {
			writeError(w, err)
			return
		}
		text, err := newMarshaler().Marshal(answer)
		if err != nil {
			writeError(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Write(text) //nolint:errcheck // the client has gone
	}
}

func callWithFile(mux *runtime.ServeMux, method string, call fileCall, r *http.Request) (proto.Message, error) {
	ctx, err := runtime.AnnotateContext(r.Context(), mux, r, method)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		if slow := tooSlow(r); slow != nil {
			err = slow
		}
		return nil, status.Errorf(codes.InvalidArgument, "read the file: %v", err)
	}
	read, err := spec.Parse(data)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	var written struct {
		Tenant *string `yaml:"tenant"`
	}
	if err := yaml.Unmarshal(data, &written); err == nil && written.Tenant == nil {
		read.Tenant = "" // the server derives it from the token
	}
	answer, err := call(ctx, read, r)
	if st, ok := status.FromError(err); ok && st.Code() == codes.InvalidArgument {
		return nil, status.Error(st.Code(), spec.Locate(data, st.Message()))
	}
	return answer, err
}

// submitFile returns the call that submits a file's sweep.
func submitFile(client outbidv1.OutbidServiceClient) fileCall {
	return func(ctx context.Context, read *outbidv1.SweepSpec, r *http.Request) (proto.Message, error) {
		req := &outbidv1.SubmitSweepRequest{}
		if err := runtime.PopulateQueryParameters(req, r.URL.Query(), &utilities.DoubleArray{}); err != nil {
			return nil, err
		}
		req.Spec = read
		return client.SubmitSweep(ctx, req)
	}
}

// previewFile returns the call that previews a file's sweep.
func previewFile(client outbidv1.OutbidServiceClient) fileCall {
	return func(ctx context.Context, read *outbidv1.SweepSpec, r *http.Request) (proto.Message, error) {
		req := &outbidv1.PreviewSweepRequest{}
		if err := runtime.PopulateQueryParameters(req, r.URL.Query(), &utilities.DoubleArray{}); err != nil {
			return nil, err
		}
		req.Spec = read
		return client.PreviewSweep(ctx, req)
	}
}
