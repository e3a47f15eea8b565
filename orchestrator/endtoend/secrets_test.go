package endtoend

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// secretValue must not be found anywhere. It is long enough not to occur by chance.
const secretValue = "s3cr3t-/value+of=a&tenant-9d41c07a6e"

// secretProgram proves by a file outside Outbid that it has the value, and then outputs it in every way that programs
// can.
const secretProgram = `
printf %s "$WANDB_API_KEY" > "$PROOF"
echo "stdout has $WANDB_API_KEY in it"
echo "stderr has $WANDB_API_KEY in it" >&2
head -c 65530 /dev/zero | tr '\0' x; echo "$WANDB_API_KEY"
printf '%s' "$WANDB_API_KEY" | base64
echo "{{\"step\": 1, \"loss\": {height}, \"$WANDB_API_KEY\": 2}}" >> "$OUTBID_REPORT"
echo "not a report: $WANDB_API_KEY" >> "$OUTBID_REPORT"
echo "{{\"step\": \"$(head -c 60 /dev/zero | tr '\0' y)$WANDB_API_KEY\"}}" >> "$OUTBID_REPORT"
echo "{{\"step\": 2, \"loss\": {height}, \"checkpoint\": \"/nowhere/$WANDB_API_KEY\"}}" >> "$OUTBID_REPORT"
echo "died with $(head -c 950 /dev/zero | tr '\0' z)$WANDB_API_KEY" >&2
exit 3
`

func secretSpec(proof string) *outbidv1.SweepSpec {
	spec := shell("secret", "", "", 2)
	spec.Workload = &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{
		Shell: secretProgram, Env: map[string]string{"PROOF": proof}, Secrets: map[string]string{"WANDB_API_KEY": "wandb"},
	}}
	return spec
}

// forms returns the possible encodings of the value.
func forms() [][]byte {
	return [][]byte{
		[]byte(secretValue[:12]), []byte(base64.StdEncoding.EncodeToString([]byte(secretValue)))[:40],
		[]byte("s3cr3t-%2Fvalue"),
	}
}

// hasNone fails the test if data contains the value in one of its forms.
func hasNone(t *testing.T, what string, data []byte) {
	t.Helper()
	for _, form := range forms() {
		if i := bytes.Index(data, form); i >= 0 {
			t.Errorf("%s contains %q: …%q…", what, form, data[max(0, i-80):min(len(data), i+len(form)+40)])
		}
	}
}

// spy is a codec that checks every answer of a client.
type spy struct {
	encoding.Codec
	t *testing.T
}

func (s spy) Unmarshal(data []byte, v any) error {
	hasNone(s.t, fmt.Sprintf("an answer of type %T", v), data)
	m, _ := v.(proto.Message)
	return proto.Unmarshal(data, m)
}

func (s spy) Marshal(v any) ([]byte, error) {
	m, _ := v.(proto.Message)
	return proto.Marshal(m)
}

func (s spy) Name() string { return encodingproto.Name }

func TestNoValueOfASecretIsFoundAnywhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	proof := filepath.Join(t.TempDir(), "proof")
	expectErrors(t, "exited with code 3")
	s := serve(t, dir, "up", "--devices", "cpu:1", "--log-level", "debug")
	tool2 := func(args ...string) {
		text, code := tool(t, dir, append([]string{"--server", s.Info.API, "--log-level", "debug"}, args...)...)
		if code != 0 {
			t.Fatalf("outbid %v: exit code %d:\n%s", args, code, text)
		}
		hasNone(t, "what outbid "+strings.Join(args, " ")+" prints", []byte(text))
	}
	value := writeFile(t, secretValue+"\n")
	tool2("secret", "set", "wandb", "--from-file", value)
	if err := os.Remove(value); err != nil {
		t.Fatal(err)
	}
	id := s.submit(secretSpec(proof))
	sw := s.wait(id)
	if got, err := os.ReadFile(proof); err != nil || string(got) != secretValue {
		t.Fatalf("the trial found %q, %v; %v", got, err, sw.GetNotes())
	}
	logs, _ := tool(t, dir, "--server", s.Info.API, "logs", id)
	if !strings.Contains(logs, "stdout has *** in it") || !strings.Contains(logs, "stderr has *** in it") {
		t.Errorf("the logs are:\n%s", logs)
	}
	searchAll := func() {
		s.searchAnswers(t, &entry{id: id, spec: secretSpec(proof)})
		for _, args := range [][]string{
			{"secret", "ls"},
			{"export", id, "--trials", "-"},
			{"export", id, "--reports", "-"},
			{"export", "--ledger", "-"},
			{"logs", id},
			{"show", id},
			{"show", id + "/0"},
			{"show", id, "-o", "json"},
			{"doctor"},
			{"nodes", "-o", "json"},
		} {
			if text, _ := tool(t, dir, append([]string{"--server", s.Info.API, "--log-level", "debug"}, args...)...); text != "" {
				hasNone(t, "outbid "+strings.Join(args, " "), []byte(text))
			}
		}
		searchFiles(t, filepath.Join(dir, "data"))
		text, _ := s.out.text()
		hasNone(t, "the log", []byte(text))
	}
	searchAll()
	tool2("secret", "rm", "wandb")
	if _, err := s.SubmitSweep(t.Context(), &outbidv1.SubmitSweepRequest{Spec: secretSpec(proof)}); err == nil ||
		!strings.Contains(err.Error(), `program.env.WANDB_API_KEY: tenant default has no secret "wandb"`) {
		t.Errorf("submitted without its secret: %v", err)
	}
	searchAll()
	s.stop()
	searchFiles(t, filepath.Join(dir, "data"))
}

// TestTrialsAfterARemovedSecretFailAndSayWhy checks that a trial that starts after its secret was removed fails with a
// reason that names the secret, while a running one continues. A replaced value applies to the next trial.
func TestTrialsAfterARemovedSecretFailAndSayWhy(t *testing.T) {
	t.Parallel()
	dir, proof := t.TempDir(), t.TempDir()
	expectErrors(t, "cannot make orders for it")
	s := serve(t, dir, "up", "--devices", "cpu:1")
	set := func(value string) {
		if _, err := s.SetSecret(t.Context(), &outbidv1.SetSecretRequest{Name: "wandb", Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	set("first value")
	spec := shell("secret", proof, `printf %s "$WANDB" > $DIR/$OUTBID_TRIAL.new; mv $DIR/$OUTBID_TRIAL.new $DIR/$OUTBID_TRIAL
while ! [ -e $DIR/go$OUTBID_TRIAL ]; do sleep 0.02; done`+reportOne, 3)
	spec.GetProgram().Secrets = map[string]string{"WANDB": "wandb"}
	id := s.submit(spec)
	found := func(trial string) string {
		var text []byte
		poll(t, "trial "+trial, func() bool {
			var err error
			text, err = os.ReadFile(filepath.Join(proof, trial))
			return err == nil
		})
		return string(text)
	}
	release := func(trial string) {
		if err := os.WriteFile(filepath.Join(proof, "go"+trial), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := found("0"); got != "first value" {
		t.Errorf("trial 0 found %q", got)
	}
	set("second value")
	release("0")
	if got := found("1"); got != "second value" {
		t.Errorf("trial 1 found %q", got)
	}
	if _, err := s.DeleteSecret(t.Context(), &outbidv1.DeleteSecretRequest{Name: "wandb"}); err != nil {
		t.Fatal(err)
	}
	release("1")
	s.wait(id)
	trials := s.trials(id)
	if got := trials[1].GetState(); got != outbidv1.TrialState_TRIAL_STATE_COMPLETED {
		t.Errorf("the trial that ran when its secret was removed is %s: %s", got, trials[1].GetReason())
	}
	if last := trials[2]; last.GetState() != outbidv1.TrialState_TRIAL_STATE_FAILED ||
		!strings.Contains(last.GetReason(), `tenant default has no secret "wandb" now; set it with 'outbid secret set wandb'`) {
		t.Errorf("the trial after it is %s: %s", last.GetState(), last.GetReason())
	}
}

// searchAnswers calls every reading method, over gRPC and REST, and searches each answer for the value.
func (s *server) searchAnswers(t *testing.T, e *entry) {
	t.Helper()
	c := *s.in(t)
	conn, err := grpc.NewClient(strings.TrimPrefix(s.Info.API, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(spy{t: t})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c.OutbidServiceClient = outbidv1.NewOutbidServiceClient(conn)
	for _, call := range c.reads() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_ = call(ctx, e) // some fail, such as for a missing soup
		cancel()
	}
	for _, path := range []string{"/metrics", "/healthz", "/v1/server", "/v1/sweeps", "/v1/sweeps/" + e.id + "/logs", "/v1/ledger"} {
		resp, err := http.Get(s.Info.API + path) //nolint:noctx // the test's own server
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		hasNone(t, "GET "+path, text)
	}
}

// searchFiles searches every file below a directory for the value.
func searchFiles(t *testing.T, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // files come and go while the server runs
		}
		data, err := os.ReadFile(path)
		if err == nil {
			files++
			hasNone(t, path, data)
		}
		return nil
	})
	if err != nil || files < 10 {
		t.Errorf("%d files were searched: %v", files, err)
	}
}
