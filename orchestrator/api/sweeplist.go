package api

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"weak"

	gateway "github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Pages ask for the list of sweeps again and again. So each view of a sweep is encoded once, in both formats, and a client
// that names the ETag of its list gets a new one only if it differs.

// sweepEncodings are sweeps in their wire format, which are kept as long as the views that they were made from.
type sweepEncodings struct{ kept sync.Map }

// of returns a sweep in its wire format. Neither may be changed afterwards.
func (e *sweepEncodings) of(s *outbidv1.Sweep) ([]byte, error) {
	key := weak.Make(s)
	if kept, ok := e.kept.Load(key); ok {
		data, _ := kept.([]byte)
		return data, nil
	}
	data, err := protobuf.MarshalOptions{Deterministic: true}.Marshal(s)
	if err != nil {
		return nil, err
	}
	if _, known := e.kept.LoadOrStore(key, data); !known {
		runtime.AddCleanup(s, func(key weak.Pointer[outbidv1.Sweep]) { e.kept.Delete(key) }, key)
	}
	return data, nil
}

// size returns the size of a sweep in its wire format, or 0 if it cannot be encoded.
func (e *sweepEncodings) size(s *outbidv1.Sweep) int {
	data, _ := e.of(s) // list returns the error
	return len(data)
}

// list returns a list of sweeps in its wire format.
func (e *sweepEncodings) list(r *outbidv1.ListSweepsResponse) ([]byte, error) {
	all, size := make([][]byte, len(r.GetSweeps())), 0
	for i, s := range r.GetSweeps() {
		data, err := e.of(s)
		if err != nil {
			return nil, err
		}
		all[i] = data
		size += protowire.SizeTag(sweepsField) + protowire.SizeBytes(len(data))
	}
	out := make([]byte, 0, size)
	for _, data := range all {
		out = protowire.AppendBytes(protowire.AppendTag(out, sweepsField, protowire.BytesType), data)
	}
	return protobuf.MarshalOptions{}.MarshalAppend(out, &outbidv1.ListSweepsResponse{NextPageToken: r.GetNextPageToken()})
}

// sweepsField is the number of the field ListSweepsResponse.sweeps.
const sweepsField = 1

// sweepList answers ListSweeps over HTTP.
type sweepList struct {
	conn grpc.ClientConnInterface
	mux  *gateway.ServeMux
	json jsonMarshaler
	seed maphash.Seed

	mu sync.Mutex
	// sweeps are sweeps as JSON by their wire format. Above keptJSON bytes they become before, whose unused sweeps are dropped at the next time.
	sweeps, before map[string][]byte
	bytes          int
}

// keptJSON is half of the bytes of JSON that are kept.
const keptJSON = 16 << 20

func newSweepList(conn grpc.ClientConnInterface, mux *gateway.ServeMux) *sweepList {
	return &sweepList{conn: conn, mux: mux, json: newMarshaler(), seed: maphash.MakeSeed(), sweeps: map[string][]byte{}}
}

// ServeHTTP implements http.Handler.
func (l *sweepList) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := l.serve(w, r); err != nil {
		writeError(w, err)
	}
}

func (l *sweepList) serve(w http.ResponseWriter, r *http.Request) error {
	const method = outbidv1.OutbidService_ListSweeps_FullMethodName
	ctx, err := gateway.AnnotateContext(r.Context(), l.mux, r, method)
	if err != nil {
		return err
	}
	req := &outbidv1.ListSweepsRequest{}
	if err := gateway.PopulateQueryParameters(req, r.URL.Query(), &utilities.DoubleArray{}); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	list, err := l.call(ctx, method, req)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("ETag", strconv.Quote(strconv.FormatUint(maphash.Bytes(l.seed, list), 16)))
	if r.Header.Get("If-None-Match") == h.Get("ETag") {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	text, err := l.render(list)
	if err != nil {
		return err
	}
	h.Set("Content-Type", "application/json")
	w.Write(text) //nolint:errcheck // the client has gone
	return nil
}

// call returns the answer in its wire format.
func (l *sweepList) call(ctx context.Context, method string, req protobuf.Message) (list []byte, err error) {
	err = l.conn.Invoke(ctx, method, req, &list, grpc.ForceCodecV2(bytesCodec{newWireCodec(nil)}))
	return list, err
}

// bytesCodec is a codec that leaves answers as they are.
type bytesCodec struct{ wireCodec }

// Unmarshal implements encoding.CodecV2.
func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	to, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T is not a *[]byte", v)
	}
	*to = data.Materialize()
	return nil
}

// Name implements encoding.CodecV2.
func (bytesCodec) Name() string { return proto.Name }

// render returns a list in wire format as JSON.
func (l *sweepList) render(list []byte) ([]byte, error) {
	text := append(make([]byte, 0, 8*len(list)), `{"sweeps":[`...)
	var rest []byte
	for len(list) > 0 {
		number, kind, n := protowire.ConsumeTag(list)
		size := protowire.ConsumeFieldValue(number, kind, list[max(0, n):])
		if n < 0 || size < 0 {
			return nil, fmt.Errorf("the list of sweeps is damaged: %w", protowire.ParseError(min(n, size)))
		}
		if number == sweepsField {
			data, _ := protowire.ConsumeBytes(list[n:])
			sweep, err := l.sweep(data)
			if err != nil {
				return nil, err
			}
			if text[len(text)-1] != '[' {
				text = append(text, ',')
			}
			text = append(text, sweep...)
		} else {
			rest = append(rest, list[:n+size]...)
		}
		list = list[n+size:]
	}
	var others outbidv1.ListSweepsResponse
	if err := protobuf.Unmarshal(rest, &others); err != nil {
		return nil, err
	}
	token, err := json.Marshal(others.GetNextPageToken())
	if err != nil {
		return nil, err
	}
	return append(append(append(text, `],"next_page_token":`...), token...), '}'), nil
}

// sweep returns a sweep in wire format as JSON.
func (l *sweepList) sweep(data []byte) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if text, known := l.sweeps[string(data)]; known {
		return text, nil
	}
	text, known := l.before[string(data)]
	if !known {
		var sweep outbidv1.Sweep
		if err := protobuf.Unmarshal(data, &sweep); err != nil {
			return nil, err
		}
		var err error
		if text, err = l.json.Marshal(&sweep); err != nil {
			return nil, err
		}
	}
	if l.bytes += len(data) + len(text); l.bytes > keptJSON {
		l.before, l.sweeps, l.bytes = l.sweeps, map[string][]byte{}, len(data)+len(text)
	}
	l.sweeps[string(data)] = text
	return text, nil
}
