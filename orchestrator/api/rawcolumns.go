package api

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"github.com/klauspost/compress/gzip"
	"google.golang.org/protobuf/encoding/protojson"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// rawPiece is the head of a frame. After it come the numbers and, of each column, values and text; each begins at a
// multiple of eight bytes.
type rawPiece struct {
	Version string          `json:"version,omitempty"`
	Whole   bool            `json:"whole,omitempty"`
	Sweep   json.RawMessage `json:"sweep,omitempty"`
	Rows    int             `json:"rows"`
	Columns []rawColumn     `json:"columns"`
}

// rawColumn describes a column of a frame. Type is "" for a column without numbers.
type rawColumn struct {
	Kind     string   `json:"kind"`
	Name     string   `json:"name"`
	Type     string   `json:"type,omitempty"`
	Words    []string `json:"words,omitempty"`
	TextType string   `json:"text_type,omitempty"`
}

// rawColumns answers ReadColumns with frames of bytes, which browsers read without decoding, if the client accepts
// application/octet-stream. A frame is the sizes of head and data as 32-bit integers, the head as JSON, and the data.
func rawColumns(client outbidv1.OutbidServiceClient, mux *runtime.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "application/octet-stream" {
			mux.ServeHTTP(w, r)
			return
		}
		if err := sendColumns(w, r, client, mux); err != nil {
			writeError(w, err)
		}
	}
}

// sendColumns returns an error only if it has not written anything yet.
func sendColumns(w http.ResponseWriter, r *http.Request, client outbidv1.OutbidServiceClient, mux *runtime.ServeMux) error {
	ctx, err := runtime.AnnotateContext(r.Context(), mux, r, outbidv1.OutbidService_ReadColumns_FullMethodName)
	if err != nil {
		return err
	}
	req := &outbidv1.ReadColumnsRequest{Sweep: r.PathValue("sweep")}
	if err := runtime.PopulateQueryParameters(req, r.URL.Query(), &utilities.DoubleArray{}); err != nil {
		return err
	}
	stream, err := client.ReadColumns(ctx, req)
	if err != nil {
		return err
	}
	piece, err := stream.Recv()
	if err != nil {
		return err
	}
	out := newFrames(w, r)
	for ; err == nil; piece, err = stream.Recv() {
		if out.send(piece) != nil {
			return nil //nolint:nilerr // the client has gone
		}
	}
	if !errors.Is(err, io.EOF) {
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to signal an incomplete answer
	}
	out.close()
	return nil
}

// frames writes frames, compressed if the client accepts that.
type frames struct {
	to      io.Writer
	packed  *gzip.Writer
	control *http.ResponseController
}

func newFrames(w http.ResponseWriter, r *http.Request) *frames {
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept, Accept-Encoding")
	f := &frames{to: w, control: http.NewResponseController(w)}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		if packed, err := gzip.NewWriterLevel(w, gzip.BestSpeed); err == nil {
			h.Set("Content-Encoding", "gzip")
			f.to, f.packed = packed, packed
		}
	}
	return f
}

// send writes a piece, and passes it on to the client at once.
func (f *frames) send(piece *outbidv1.ReadColumnsResponse) error {
	frame, err := encodeFrame(piece)
	if err != nil {
		return err
	}
	if _, err := f.to.Write(frame); err != nil {
		return err
	}
	if f.packed != nil {
		if err := f.packed.Flush(); err != nil {
			return err
		}
	}
	return f.control.Flush()
}

func (f *frames) close() {
	if f.packed != nil {
		f.packed.Close() //nolint:errcheck // the client has gone
	}
}

func encodeFrame(piece *outbidv1.ReadColumnsResponse) ([]byte, error) {
	head := rawPiece{Version: piece.GetVersion(), Whole: piece.GetWhole(), Rows: len(piece.GetNumbers()) / 4}
	if piece.GetSweep() != nil {
		sweep, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(piece.GetSweep())
		if err != nil {
			return nil, err
		}
		head.Sweep = sweep
	}
	data := pad(piece.GetNumbers(), 0)
	for _, c := range piece.GetColumns() {
		head.Columns = append(head.Columns, rawColumn{c.GetKind().String(), c.GetName(), c.GetType(), c.GetWords(), c.GetTextType()})
		data = append(pad(append(data, c.GetValues()...), 0), c.GetText()...)
		data = pad(data, 0)
	}
	text, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	text = pad(text, ' ')
	frame := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
	frame = binary.LittleEndian.AppendUint32(frame, uint32(len(data)))
	return append(append(frame, text...), data...), nil
}

// pad appends a byte until the length is a multiple of eight.
func pad(data []byte, with byte) []byte {
	for len(data)%8 != 0 {
		data = append(data, with)
	}
	return data
}
