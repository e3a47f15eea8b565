package cli

import (
	"strings"
	"testing"
)

// A drain that is forced ends the trials that are left after the deadline; another one names them and fails.
func TestForcedDrain(t *testing.T) {
	t.Parallel()
	url, _ := serveFake(t, newFake(), "127.0.0.1:0")
	drain := func(more ...string) (code int, out, said string) {
		app := newTestApp(strings.NewReader(""), map[string]string{"OUTBID_URL": url})
		code = app.run(t.Context(), append([]string{"nodes", "drain", "left", "--deadline", "1ms"}, more...))
		return code, app.out.String(), app.err.String()
	}
	if code, _, said := drain(); code == 0 || !strings.Contains(said, "digits-2/1 still run on left after 1ms") {
		t.Errorf("not forced: %d, %s", code, said)
	}
	code, out, said := drain("--force")
	if code != 0 || out != "left is drained\n" || !strings.Contains(said, "digits-2/1 did not save in time") {
		t.Errorf("forced: %d, %s%s", code, out, said)
	}
}
