package objectstest

import "testing"

// VersityEnv is the environment variable with the binary of a Versity S3 Gateway, another server that implements S3.
const VersityEnv = "OUTBID_TEST_VERSITYGW"

// Versity is a Versity S3 Gateway for a test over a directory, on the loopback interface.
type Versity struct{ process }

// StartVersity starts a gateway that ends with the test, or skips the test if OUTBID_TEST_VERSITYGW is not set.
func StartVersity(t testing.TB) *Versity {
	t.Helper()
	v := &Versity{newProcess(t, VersityEnv, "http", "/health")}
	v.args = []string{"--quiet", "--health", "/health", "--port", v.addr, "--access", v.User, "--secret", v.Password, "posix", v.dir}
	v.Start(t)
	t.Cleanup(func() { v.Stop(t) })
	return v
}
