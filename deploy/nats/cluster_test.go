package nats

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/outbid-dev/outbid/orchestrator/api"
	"github.com/outbid-dev/outbid/orchestrator/identity"
)

// uncomment takes the comment from the tls block of a configuration, with certificates.
func uncomment(text string, certs api.Certs) string {
	text = regexp.MustCompile(`(?m)^(\s*)# ((tls \{|  \w+_file: ".*"|\}))$`).ReplaceAllString(text, "$1$2")
	for name, file := range map[string]string{"cert_file": certs.Cert, "key_file": certs.Key, "ca_file": certs.CA} {
		text = regexp.MustCompile(name+`: ".*"`).ReplaceAllString(text, fmt.Sprintf("%s: %q", name, file))
	}
	return text
}

// Three servers with nats.conf and cluster.conf find each other, without TLS and with the certificate of 'outbid tls
// new', and refuse all others.
func TestClusterConfig(t *testing.T) {
	t.Parallel()
	for name, secure := range map[string]bool{"on loopback": false, "beyond": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			keys, err := identity.MakeKeys(filepath.Join(dir, "keys"))
			if err != nil {
				t.Fatal(err)
			}
			auth, err := keys.NATSConfig()
			if err != nil {
				t.Fatal(err)
			}
			certs, err := api.MakeCert(filepath.Join(dir, "tls"), nil, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			ports := freePorts(t, 3)
			var servers []*server.Server
			for i := range 3 {
				servers = append(servers, startOne(t, filepath.Join(dir, fmt.Sprint("n", i)), auth, certs, secure, i, ports))
			}
			waitFor(t, "the cluster", func() bool {
				for _, s := range servers {
					if s.NumRoutes() == 0 || !s.JetStreamIsCurrent() || len(s.JetStreamClusterPeers()) != 3 && s.JetStreamIsLeader() {
						return false
					}
				}
				return true
			})
			if !secure {
				refusesStrangers(t, ports[0])
			}
		})
	}
}

// refusesStrangers fails if a server with another password may join at a port.
func refusesStrangers(t *testing.T, port int) {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, `CONNECT {"user":"outbid","pass":"WRONG","name":"stranger","cluster":"outbid"}`+"\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(conn) // it hangs up
	if !strings.Contains(string(answer), "Authorization Violation") {
		t.Errorf("a server with another password is answered %s", answer)
	}
}

// startOne starts one of the servers.
func startOne(t *testing.T, dir string, auth []byte, certs api.Certs, secure bool, i int, ports []int) *server.Server {
	t.Helper()
	var text string
	for _, file := range []string{"nats.conf", "cluster.conf"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if part := string(data); secure && file == "cluster.conf" {
			text += uncomment(part, certs)
		} else {
			text += part
		}
	}
	for n, port := range ports {
		text = strings.ReplaceAll(text, fmt.Sprintf("@127.0.0.1:622%d", n+1), fmt.Sprintf("@127.0.0.1:%d", port))
	}
	text = strings.Replace(text, "listen: 127.0.0.1:6222", fmt.Sprintf("listen: 127.0.0.1:%d", ports[i]), 1)
	text = strings.Replace(text, "server_name: outbid", fmt.Sprintf("server_name: n%d", i), 1)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"nats.conf": []byte(text), "auth.conf": auth} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opts, err := server.ProcessConfigFile(filepath.Join(dir, "nats.conf"))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if (opts.Cluster.TLSConfig != nil) != secure {
		t.Fatalf("TLS of routes: %v", opts.Cluster.TLSConfig)
	}
	opts.Port, opts.HTTPPort, opts.StoreDir, opts.NoSigs, opts.NoLog = -1, -1, filepath.Join(dir, "data"), true, true
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s
}

// freePorts returns unused ports of loopback.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// waitFor polls a condition that has no event.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(2 * time.Minute)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
