package cli

import (
	"net"
	"strings"
	"testing"
)

// A server that starts or stands by tells the command line so, as it tells a browser.
func TestAServerThatIsNotReadySaysSo(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := openPorch(l, nil)
	p.waitFor("the lead")
	app := newTestApp(nil, nil)
	if code := <-app.start(t.Context(), "ls", "--server", "http://"+l.Addr().String()); code == exitOK {
		t.Error("ls ended well without a server")
	}
	if text := app.err.String(); !strings.Contains(text, "starts or stands by, and waits for the lead") {
		t.Errorf("stderr: %s", text)
	}
	if err := p.leave(); err != nil {
		t.Error(err)
	}
}
