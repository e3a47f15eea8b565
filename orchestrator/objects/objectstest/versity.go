package objectstest

import (
	"slices"
	"testing"
)

// VersityEnv is the environment variable with the binary of a Versity S3 Gateway, the server that implements S3 in tests.
const VersityEnv = "OUTBID_TEST_VERSITYGW"

// Versity is a Versity S3 Gateway for a test over a directory, on the loopback interface.
type Versity struct{ process }

// StartVersity starts a gateway that ends with the test, or skips the test if OUTBID_TEST_VERSITYGW is not set.
func StartVersity(t testing.TB) *Versity {
	t.Helper()
	return startVersity(t, "http")
}

// StartVersityTLS is StartVersity over TLS, with a certificate and key file.
func StartVersityTLS(t testing.TB, certFile, keyFile string) *Versity {
	t.Helper()
	return startVersity(t, "https", "--cert", certFile, "--key", keyFile)
}

func startVersity(t testing.TB, scheme string, flags ...string) *Versity {
	t.Helper()
	v := &Versity{newProcess(t, VersityEnv, scheme, "/health")}
	v.args = slices.Concat([]string{"--quiet", "--health", "/health", "--port", v.addr}, flags, []string{"posix", v.dir})
	v.env = []string{"ROOT_ACCESS_KEY=" + v.User, "ROOT_SECRET_KEY=" + v.Password} // other processes can read arguments
	v.Start(t)
	t.Cleanup(func() { v.Stop(t) })
	return v
}
