package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestLogsOnATerminalAreWithoutControlSequences(t *testing.T) {
	t.Parallel()
	const line = "\x1b]0;owned\x07\x1b[31mloss\x1b[0m 0.5\x07"
	for name, tc := range map[string]struct {
		terminal, raw bool
		want          string
	}{
		"terminal": {true, false, "loss 0.5\\x07\n"},
		"raw":      {true, true, line + "\n"},
		"pipe":     {false, false, line + "\n"},
	} {
		app := newTestApp(nil, nil)
		var out bytes.Buffer
		app.stdout, app.term.out = &out, tc.terminal
		lines := []string{line}
		next := func() (*outbidv1.StreamLogsResponse, error) {
			if len(lines) == 0 {
				return nil, io.EOF
			}
			lines = nil
			return &outbidv1.StreamLogsResponse{Line: line}, nil
		}
		if err := (&queryCommands{app.client}).printLogs(next, false, logOptions{out: formatTable, raw: tc.raw}); err != nil || out.String() != tc.want {
			t.Errorf("%s: %q, %v; want %q", name, out.String(), err, tc.want)
		}
	}
}

func TestAServerRefusesAnExpiredCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old := newTestApp(nil, nil)
	if code := <-old.start(t.Context(), "tls", "new", "--dir", dir, "--host", "a.example"); code != exitOK {
		t.Fatal(old.err)
	}
	late := newTestApp(nil, nil)
	late.now = func() time.Time { return noon().AddDate(3, 0, 0) }
	code := <-late.start(t.Context(), "serve", "--data", t.TempDir(), "--tls-cert", dir+"/cert.pem", "--tls-key", dir+"/key.pem")
	if text := late.err.String(); code != exitUsage || !strings.Contains(text, "expired at 2028-05-04") {
		t.Errorf("exit code %d: %s", code, text)
	}
}
