package endtoend

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TestSIGHUPReadsFilesAgainAndNamesWhatNeedsARestart starts a server from a configuration file and changes the file, and
// a file that it names.
func TestSIGHUPReadsFilesAgainAndNamesWhatNeedsARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	prices, file := filepath.Join(dir, "prices.yaml"), filepath.Join(dir, "outbid.yaml")
	put := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(prices, "currency: EUR\ndevice_hour: {cpu: 1}\n")
	put(file, "serve:\n  lease: 20s\n  samplers: 7\n  log-format: json\n  prices: "+prices+"\n")
	s := serve(t, dir, "serve", "--config", file, "--name", "left", "--nats-listen", "127.0.0.1:0")
	put(prices, "currency: USD\ndevice_hour: {cpu: 2}\n")
	put(file, "serve:\n  lease: 30s\n  samplers: 7\n  name: right\n  log-format: json\n  prices: "+prices+"\n")
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.until(`"settings":"lease"`) // not the name, which a flag sets
	s.until("reading the files of tokens, limits, prices and the certificate again")
	poll(t, "the new currency", func() bool {
		r, err := s.GetUsage(t.Context(), &outbidv1.GetUsageRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetCurrency() == "USD"
	})
	put(file, "serve:\n  lease: fast\n")
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.until("the configuration is not valid; the previous one stays in use")
	if text, _ := s.out.text(); !strings.Contains(text, `serve.lease: must be a duration such as 15s`) {
		t.Errorf("it printed\n%s", text)
	}
}
