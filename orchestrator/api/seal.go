package api

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// sealJSON encrypts a value for a cookie, with AES-GCM and a random nonce. The purpose keeps a cookie of one kind from
// being used as another.
func sealJSON(key []byte, purpose string, v any) (string, error) {
	box, err := newBox(key)
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode a cookie: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(box.Seal(nil, nil, data, []byte(purpose))), nil
}

// openJSON decrypts a value of sealJSON into v. It fails if the value was changed or is of another purpose.
func openJSON(key []byte, purpose, sealed string, v any) error {
	box, err := newBox(key)
	if err != nil {
		return err
	}
	data, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return fmt.Errorf("decode a cookie: %w", err)
	}
	if data, err = box.Open(nil, nil, data, []byte(purpose)); err != nil {
		return fmt.Errorf("open a cookie: %w", err)
	}
	return json.Unmarshal(data, v)
}

func newBox(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("key of cookies: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}
