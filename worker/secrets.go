package worker

import (
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/identity"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/redact"
)

// secrets are environment variables of training code. The mask removes their values from its output and messages.
type secrets struct {
	variables map[string]string
	mask      *redact.Mask
	// unopened is why they cannot be decrypted, or nil.
	unopened error
}

// openSecrets decrypts a trial's secrets, which are sealed for this process.
func openSecrets(key *identity.SealKey, node string, sealed []byte) secrets {
	if len(sealed) == 0 {
		return secrets{}
	}
	opened := &outbidv1.SecretEnvironment{}
	plain, err := key.Open(node, sealed)
	if err != nil || proto.Unmarshal(plain, opened) != nil { // the error is dropped because it may quote a value
		return secrets{unopened: fail(outbidv1.FailureKind_FAILURE_KIND_ERROR, "the secrets of the trial are not sealed for this worker; it will be started "+
			"again with new ones")}
	}
	return secrets{variables: opened.GetEnv(), mask: redact.New(opened.GetEnv())}
}
