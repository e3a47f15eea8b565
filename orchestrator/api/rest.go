package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/outbid-dev/outbid/orchestrator/audit"
	"github.com/outbid-dev/outbid/orchestrator/traceparent"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// maxBody limits the body of a REST request in bytes.
const maxBody = 4 << 20

// jsonMarshaler is the gateway's marshaler, with errors in streams as jsonError.
type jsonMarshaler struct{ *runtime.JSONPb }

func newMarshaler() jsonMarshaler {
	return jsonMarshaler{&runtime.JSONPb{
		MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true},
		UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: false},
	}}
}

// Marshal implements runtime.Marshaler. The gateway passes an error in a stream as a map.
func (m jsonMarshaler) Marshal(v any) ([]byte, error) {
	if chunk, ok := v.(map[string]proto.Message); ok {
		if st, ok := chunk["error"].(*spb.Status); ok {
			return json.Marshal(newJSONError(status.FromProto(st)))
		}
	}
	return m.JSONPb.Marshal(v)
}

// newGateway returns the mux of the REST paths, which are generated from service.http.yaml.
func newGateway() *runtime.ServeMux {
	nothing := func(string) (string, bool) { return "", false }
	return runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, newMarshaler()),
		runtime.WithErrorHandler(func(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler,
			w http.ResponseWriter, r *http.Request, err error,
		) {
			if slow := tooSlow(r); slow != nil {
				err = slow
			}
			writeError(w, pathError(err))
		}),
		runtime.WithRoutingErrorHandler(func(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler,
			w http.ResponseWriter, r *http.Request, code int,
		) {
			writeError(w, &runtime.HTTPStatusError{HTTPStatus: code, Err: routingError(r, code)})
		}),
		// The gateway always forwards Authorization; of other headers it forwards only traceparent.
		runtime.WithIncomingHeaderMatcher(func(name string) (string, bool) {
			return traceparent.Header, strings.EqualFold(name, traceparent.Header)
		}),
		runtime.WithOutgoingHeaderMatcher(nothing),
		runtime.WithOutgoingTrailerMatcher(nothing),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithMetadata(unknownParameter),
		runtime.WithMetadata(userAgent),
	)
}

func routingError(r *http.Request, code int) error {
	switch code {
	case http.StatusMethodNotAllowed:
		return status.Errorf(codes.Unimplemented, "%s is not allowed for %s", r.Method, r.URL.Path)
	case http.StatusNotFound:
		return status.Errorf(codes.NotFound, "there is no path %s", r.URL.Path)
	}
	return status.Errorf(codes.InvalidArgument, "%s %s: %s", r.Method, r.URL.Path, http.StatusText(code))
}

// badParameter is the metadata key through which REST reports an unknown query parameter to the interceptor. The
// gateway's own parser ignores such parameters, and it can be replaced only for the whole process.
const badParameter = "outbid-bad-parameter"

func unknownParameter(ctx context.Context, r *http.Request) metadata.MD {
	method, _ := runtime.RPCMethod(ctx)
	fields := requestFields(method)
	if fields == nil {
		return nil
	}
	for key := range r.URL.Query() {
		name, _, inMap := strings.Cut(key, "[") // prices[h100]=2 sets an entry of a map
		f := cmp.Or(fields.ByTextName(name), fields.ByJSONName(name))
		if f == nil || inMap && !f.IsMap() {
			return metadata.Pairs(badParameter, key)
		}
	}
	return nil
}

// requestFields returns the fields of a method's request, or nil if the method does not exist.
func requestFields(method string) protoreflect.FieldDescriptors {
	services := outbidv1.File_outbid_v1_service_proto.Services()
	m := services.ByName("OutbidService").Methods().ByName(protoreflect.Name(path.Base(method)))
	if m == nil {
		return nil
	}
	return m.Input().Fields()
}

// checkParameters rejects the parameters that unknownParameter found.
func checkParameters(md metadata.MD, method string) error {
	bad := md.Get(badParameter)
	if len(bad) == 0 {
		return nil
	}
	var names []string
	if fields := requestFields(method); fields != nil {
		for i := range fields.Len() {
			names = append(names, fields.Get(i).TextName())
		}
	}
	return fieldError(bad[0], "is not a parameter of this method; its parameters are: %s", strings.Join(names, ", "))
}

// writeError writes an error as JSON.
func writeError(w http.ResponseWriter, err error) {
	code := 0
	if own, ok := errors.AsType[*runtime.HTTPStatusError](err); ok {
		code, err = own.HTTPStatus, own.Err
	}
	st := status.Convert(err)
	if code == 0 {
		code = runtime.HTTPStatusFromCode(st.Code())
	}
	if st.Code() == codes.Unauthenticated {
		w.Header().Set("WWW-Authenticate", `Bearer realm="outbid"`)
	}
	if code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "2")
	}
	if after := retryAfter(st); after != "" {
		w.Header().Set("Retry-After", after)
	}
	w.Header().Del("Transfer-Encoding")
	writeJSON(w, code, newJSONError(st))
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	w.Write(append(b, '\n')) //nolint:errcheck // the client has gone
}

// sameOrigin rejects requests from web pages of other origins. Without tokens every client that reaches the listener
// has full access, and a browser on this machine reaches it on behalf of any page. So the Host must be loopback (a page
// whose name resolves to 127.0.0.1 would send its own name), and requests that change something must not come from
// another origin.
func (i *interceptor) sameOrigin(next http.Handler) http.Handler {
	refuse := func(w http.ResponseWriter, r *http.Request, err error) {
		i.recordHTTP(r, Principal{}, strings.ToLower(r.Method), "requests", audit.DeniedOrigin, err)
		writeError(w, err)
	}
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, status.Errorf(codes.PermissionDenied, "refused: the request comes from a page of another origin (%s)",
			r.Header.Get("Origin")))
	}))
	checked := origin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i.tokens == nil && !loopbackHost(r.Host) {
			refuse(w, r, status.Errorf(codes.PermissionDenied, "refused: the request names the host %q; without tokens "+
				"this server answers to localhost only", r.Host))
			return
		}
		checked.ServeHTTP(w, r)
	})
}

// loopbackHost reports whether a Host header names this machine.
func loopbackHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || (ip != nil && ip.IsLoopback())
}

// split sends gRPC to one handler and everything else to the other.
func split(grpc, rest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && isGRPC(r.Header.Get("Content-Type")) {
			grpc.ServeHTTP(w, r)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		rest.ServeHTTP(w, r)
	})
}

func isGRPC(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (kind == "application/grpc" || strings.HasPrefix(kind, "application/grpc+"))
}

// rawCheckpoint answers GetCheckpoint with the file itself if the client accepts application/octet-stream.
func rawCheckpoint(client outbidv1.OutbidServiceClient, mux *runtime.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "application/octet-stream" {
			mux.ServeHTTP(w, r)
			return
		}
		if err := sendCheckpoint(w, r, client, mux); err != nil {
			writeError(w, err)
		}
	}
}

// sendCheckpoint returns an error only if it has not written anything yet.
func sendCheckpoint(
	w http.ResponseWriter, r *http.Request, client outbidv1.OutbidServiceClient, mux *runtime.ServeMux,
) error {
	ctx, err := runtime.AnnotateContext(r.Context(), mux, r, outbidv1.OutbidService_GetCheckpoint_FullMethodName)
	if err != nil {
		return err
	}
	req := &outbidv1.GetCheckpointRequest{Sweep: r.PathValue("sweep")}
	if err := runtime.PopulateFieldFromPath(req, "trial", r.PathValue("trial")); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if err := runtime.PopulateQueryParameters(req, r.URL.Query(), &utilities.DoubleArray{}); err != nil {
		return err
	}
	stream, err := client.GetCheckpoint(ctx, req)
	if err != nil {
		return err
	}
	piece, err := stream.Recv()
	if err != nil {
		return err
	}
	cp := piece.GetCheckpoint()
	name := fmt.Sprintf("%s-%d-%d%s", req.GetSweep(), req.GetTrial(), cp.GetStep(), extension(cp.GetKey()))
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	if cp.GetBytes() > 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(cp.GetBytes(), 10))
	}
	for ; err == nil; piece, err = stream.Recv() {
		if _, werr := w.Write(piece.GetData()); werr != nil {
			return nil //nolint:nilerr // the client has gone
		}
	}
	if !errors.Is(err, io.EOF) {
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to signal an incomplete file
	}
	return nil
}

func extension(key string) string {
	if i := strings.LastIndexByte(key, '.'); i >= 0 {
		return key[i:]
	}
	return ""
}
