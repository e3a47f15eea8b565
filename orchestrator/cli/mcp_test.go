package cli

import (
	"io"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestMCPRefusesFlagsThatWouldShareTokens(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ args, want string }{
		{"mcp --http 0.0.0.0:7780", "other machines could read tokens on the way: give --tls-cert and --tls-key"},
		{"mcp --http :7780", "other machines could read tokens on the way"},
		{"mcp --http 7780", `--http "7780": want HOST:PORT`},
		{"mcp --http 127.0.0.1:0 --token secret", "each assistant sends its own token"},
		{"mcp --tls-cert a.pem", "--tls-cert and --tls-key belong together"},
		{"mcp --tls-cert a.pem --tls-key b.pem", "--tls-cert is for HTTP"},
	} {
		app := newTestApp(strings.NewReader(""), nil)
		if code := app.run(t.Context(), strings.Fields(test.args)); code != exitUsage || !strings.Contains(app.err.String(), test.want) {
			t.Errorf("%s: exit %d, stderr lacks %q:\n%s", test.args, code, test.want, app.err)
		}
	}
}

func TestMCPServesItsStandardInput(t *testing.T) {
	t.Parallel()
	url, _ := serveFake(t, newFake(), "127.0.0.1:0")
	requests, requestWriter := io.Pipe()
	answers, answerWriter := io.Pipe()
	app := newTestApp(requests, map[string]string{"OUTBID_URL": url})
	app.stdout = answerWriter
	code := make(chan int, 1)
	go func() {
		code <- app.run(t.Context(), []string{"mcp"})
		_ = answerWriter.Close()
	}()
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &sdk.IOTransport{Reader: answers, Writer: requestWriter}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "show_sweep", Arguments: map[string]any{"sweep": "digits"}})
	if err != nil || got.IsError {
		t.Fatalf("show_sweep: %v, %v", got, err)
	}
	answer := got.StructuredContent.(map[string]any)
	if answer["server"] != "the server at "+url {
		t.Errorf("the answer is of %v", answer["server"])
	}
	if page := answer["sweep"].(map[string]any)["page"]; page != url+"/ui/sweeps/digits-2" {
		t.Errorf("the page is %v", page)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	if got := <-code; got != exitOK {
		t.Errorf("exit %d after the assistant left, stderr:\n%s", got, app.err)
	}
}
