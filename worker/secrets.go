package worker

import (
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/identity"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/redact"
)

// openSecrets decrypts the trial's secrets, which are sealed for this process.
func (f *fork) openSecrets(key *identity.SealKey) {
	sealed := f.body.GetSealedSecrets()
	if len(sealed) == 0 {
		return
	}
	opened := &outbidv1.SecretEnvironment{}
	plain, err := key.Open(f.cfg.Node, sealed)
	if err != nil || proto.Unmarshal(plain, opened) != nil { // the error is dropped because it may quote a value
		f.unopened = fail(outbidv1.FailureKind_FAILURE_KIND_ERROR, "the secrets of the trial are not sealed for this worker; it will be started "+
			"again with new ones")
		return
	}
	f.secrets = opened.GetEnv()
	f.mask = redact.New(f.secrets)
}
