package cli

import "testing"

func TestPageURL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ server, sweep, want string }{
		{"http://127.0.0.1:7700", "", "http://127.0.0.1:7700/ui/"},
		{"https://outbid.example/tune/", "digits-1", "https://outbid.example/tune/ui/sweeps/digits-1"},
		{"http://h:1", "a b", "http://h:1/ui/sweeps/a%20b"},
	} {
		if got := pageURL(c.server, c.sweep); got != c.want {
			t.Errorf("pageURL(%q, %q) = %q, want %q", c.server, c.sweep, got, c.want)
		}
	}
}
