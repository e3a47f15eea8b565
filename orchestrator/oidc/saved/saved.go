// Package saved keeps what 'outbid login' got from an OpenID provider, one file per server in the user's configuration
// directory. The Python SDK reads and refreshes the same files (outbid.rpc._signin).
package saved

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/atomicfile"
)

// SignIn is a person's sign-in to one server.
type SignIn struct {
	// Server is the server's URL as the person gave it.
	Server string `json:"server"`
	Issuer string `json:"issuer"`
	Client string `json:"client_id"`
	// CA has the PEM certificates to trust for the provider, or is "" if the system trusts it.
	CA string `json:"ca,omitempty"`
	// TokenURL is where the token is refreshed, RevokeURL where it is revoked; RevokeURL may be "".
	TokenURL  string `json:"token_url"`
	RevokeURL string `json:"revoke_url,omitempty"`
	IDToken   string `json:"id_token"`
	// Refresh gets a new ID token, or is "" if the provider gave none.
	Refresh string `json:"refresh_token,omitempty"`
}

// ErrNone means that the person did not sign in to the server from here.
var ErrNone = errors.New("not signed in")

// Dir returns the directory of the files: outbid/sign-in in $XDG_CONFIG_HOME or ~/.config. It returns "" if neither
// variable is set.
func Dir(getenv func(string) string) string {
	if dir := getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "outbid", "sign-in")
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, ".config", "outbid", "sign-in")
	}
	return ""
}

// Path returns the file of a server: its scheme, host and port, such as https_tuner.example.org_7700.json.
func Path(dir, server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("server URL %q: must be http://HOST:PORT or https://HOST:PORT", server)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	host := strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' {
			return r
		}
		return '-'
	}, strings.ToLower(u.Hostname()))
	return filepath.Join(dir, u.Scheme+"_"+host+"_"+port+".json"), nil
}

// Load reads a file. The error is ErrNone if it does not exist.
func Load(path string) (SignIn, error) {
	var s SignIn
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return s, ErrNone
	}
	if err != nil {
		return s, fmt.Errorf("read the sign-in: %w", err)
	}
	if err := json.Unmarshal(data, &s); err != nil || s.IDToken == "" {
		return s, fmt.Errorf("%s is damaged: remove it and run 'outbid login'", path)
	}
	return s, nil
}

// Save writes a file that only its owner can read.
func Save(path string, s SignIn) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("save the sign-in: %w", err)
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("save the sign-in: %w", err)
	}
	err = atomicfile.Write(path, 0o600, func(f *os.File) error {
		_, err := f.Write(append(data, '\n'))
		return err
	})
	if err != nil {
		return fmt.Errorf("save the sign-in: %w", err)
	}
	return nil
}

// Remove removes a file. The error is ErrNone if it does not exist.
func Remove(path string) error {
	if _, err := Load(path); errors.Is(err, ErrNone) {
		return err
	}
	unlock, err := lock(path)
	if err != nil {
		return err
	}
	defer unlock() // a process that refreshes the token now must not write the file again
	return errors.Join(os.Remove(path), os.Remove(path+".lock"))
}

// Expires returns when the ID token expires. It does not check the token, which the server does.
func (s SignIn) Expires() time.Time {
	parts := strings.Split(s.IDToken, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	var claims struct {
		Expires float64 `json:"exp"`
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(data, &claims) != nil {
		return time.Time{}
	}
	return time.Unix(int64(claims.Expires), 0)
}
