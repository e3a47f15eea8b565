package cli

import (
	"bytes"
	"strings"
	"testing"
)

// explained are command lines that explain sweeps and trials.
func explained() map[string][]string {
	return map[string][]string{
		"explain":               {"explain", "digits"},
		"explain-json":          {"explain", "digits-2", "--json"},
		"explain-trial":         {"explain", "digits-2/1"},
		"explain-trial-failed":  {"explain", "digits-2/0", "-o", "json"},
		"explain-done":          {"explain", "digits-1"},
		"explain-unknown":       {"explain", "nothing-1"},
		"explain-trial-unknown": {"explain", "digits-2/9"},
		"explain-trial-bad":     {"explain", "digits-2/one"},
		"explain-missing":       {"explain"},
		"explain-policy-bad":    {"explain", "digits-2", "--policy", "fairest"},
		"explain-complete":      {"__complete", "explain", "digits-2/"},
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	f := newFake()
	url, _ := serveFake(t, f, "127.0.0.1:0")
	for name, args := range explained() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := newTestApp(strings.NewReader(""), map[string]string{"OUTBID_URL": url})
			code := app.run(t.Context(), args)
			checkGolden(t, name, bytes.ReplaceAll(transcript(args, app, code), []byte(url), []byte("http://SERVER")))
		})
	}
}
