package api

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// spoof is displayed as "live.exe" because of its control character.
const spoof = "\u202Eexe.evil"

// planted is a request with a spoof in one string.
type planted struct {
	method protoreflect.MethodDescriptor
	path   string
	req    proto.Message
	// field is the string's field. key is set if the spoof is a map key.
	field protoreflect.FieldDescriptor
	key   bool
}

// plant creates a request for each string in the service's requests. It enters recursive messages twice.
func plant() []planted {
	var all []planted
	methods := outbidv1.File_outbid_v1_service_proto.Services().ByName("OutbidService").Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		root := dynamicpb.NewMessage(m.Input())
		eachString(root, map[protoreflect.FullName]int{}, "", func(path string, field protoreflect.FieldDescriptor, key bool) {
			all = append(all, planted{m, path, proto.Clone(root), field, key})
		})
	}
	return all
}

// eachString sets each string below m in turn, and calls f while it is set.
func eachString(m protoreflect.Message, within map[protoreflect.FullName]int, above string, f func(string, protoreflect.FieldDescriptor, bool)) {
	name := m.Descriptor().FullName()
	if within[name] >= 2 {
		return
	}
	within[name]++
	defer func() { within[name]-- }()
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		path := strings.TrimPrefix(above+"."+field.TextName(), ".")
		if name.Parent() == "google.protobuf" { // it is JSON for users
			path = above
		}
		switch {
		case field.IsMap():
			eachEntry(m, field, within, path, f)
		case field.Kind() == protoreflect.StringKind && field.IsList():
			list := m.Mutable(field).List()
			list.Append(protoreflect.ValueOfString("plain"))
			list.Append(protoreflect.ValueOfString(spoof))
			f(path+"[1]", field, false)
		case field.Kind() == protoreflect.StringKind:
			m.Set(field, protoreflect.ValueOfString(spoof))
			f(path, field, false)
		case field.Message() != nil && field.IsList():
			eachString(m.Mutable(field).List().AppendMutable().Message(), within, path+"[0]", f)
		case field.Message() != nil:
			eachString(m.Mutable(field).Message(), within, path, f)
		}
		m.Clear(field)
	}
}

func eachEntry(m protoreflect.Message, field protoreflect.FieldDescriptor, within map[protoreflect.FullName]int, path string,
	f func(string, protoreflect.FieldDescriptor, bool),
) {
	entries := m.Mutable(field).Map()
	if field.MapKey().Kind() == protoreflect.StringKind {
		entries.Set(protoreflect.ValueOfString(spoof).MapKey(), entries.NewValue())
		f(path+`["\u202eexe.evil"]`, field, true)
		entries.Clear(protoreflect.ValueOfString(spoof).MapKey())
	}
	key := protoreflect.ValueOfString("k").MapKey()
	switch {
	case field.MapValue().Kind() == protoreflect.StringKind:
		entries.Set(key, protoreflect.ValueOfString(spoof))
		f(path+`["k"]`, field, false)
	case field.MapValue().Message() != nil:
		eachString(entries.Mutable(key).Message(), within, path+`["k"]`, f)
	}
}

// TestNoRequestCarriesASpoof checks that no string of any request carries a bidirectional control to Control, the store
// or the ledger. The request is rejected with the field's name, or repaired if a program wrote the string.
func TestNoRequestCarriesASpoof(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 1)
	conn, err := grpc.NewClient(h.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	all := plant()
	if len(all) < 100 {
		t.Fatalf("only %d strings were found in the requests", len(all))
	}
	for _, p := range all {
		if textRule(p.field, p.key) == sanitize.Repair {
			req := generated(t, p.req)
			err := checkText(req)
			if data, _ := proto.Marshal(req); err != nil || bytes.Contains(data, []byte("\u202E")) || !bytes.Contains(data, []byte("\uFFFD")) {
				t.Errorf("%s: %s is to be repaired: %v, %v", p.method.Name(), p.path, err, req)
			}
			continue
		}
		st := status.Convert(sendOne(t.Context(), conn, p))
		if st.Code() != codes.InvalidArgument || !strings.Contains(st.Message(), "has the control character U+202E at byte 0; remove it") {
			t.Errorf("%s: %s: %v", p.method.Name(), p.path, st.Err())
			continue
		}
		details := st.Details()
		if bad, ok := details[0].(*errdetails.BadRequest); !ok || bad.GetFieldViolations()[0].GetField() != strings.TrimPrefix(p.path, "spec.") {
			t.Errorf("%s: %s is named %v", p.method.Name(), p.path, details)
		}
	}
}

// generated returns a request as the server decodes it.
func generated(t *testing.T, req proto.Message) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(req.ProtoReflect().Descriptor().FullName())
	if err != nil {
		t.Fatal(err)
	}
	data, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	m := kind.New().Interface()
	if err := proto.Unmarshal(data, m); err != nil {
		t.Fatal(err)
	}
	return m
}

func sendOne(ctx context.Context, conn *grpc.ClientConn, p planted) error {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		"/"+string(p.method.Parent().FullName())+"/"+string(p.method.Name()))
	if err != nil {
		return err
	}
	_ = stream.SendMsg(p.req) // the answer has the error
	_ = stream.CloseSend()
	return stream.RecvMsg(dynamicpb.NewMessage(p.method.Output()))
}

// TestCommandsMayHoldControlCharacters checks that strings for programs may contain control characters that names may
// not.
func TestCommandsMayHoldControlCharacters(t *testing.T) {
	t.Parallel()
	req := &outbidv1.SubmitSweepRequest{Spec: &outbidv1.SweepSpec{
		Name: "s", Workload: &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{
			Shell: "printf '\x1b[1m'\r\n", Env: map[string]string{"SEP": "\x1f"},
		}},
	}}
	if err := checkText(req); err != nil {
		t.Error(err)
	}
	req.Spec.Labels = map[string]string{"team": "a\x1b[1m"}
	if err := checkText(req); err == nil || !strings.Contains(err.Error(), `labels["team"]: has the control character U+001B at byte 1; remove it`) {
		t.Errorf("a label: %v", err)
	}
	tell := &outbidv1.TellTrialRequest{Error: "\x1b[31mValueError\x1b[0m: \u202Ebad"}
	if err := checkText(tell); err != nil || tell.GetError() != "ValueError: \uFFFDbad" {
		t.Errorf("an error: %v, %q", err, tell.GetError())
	}
}
