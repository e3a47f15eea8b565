package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// SessionPath is where the dashboard signs in (POST with a token) and out (DELETE).
	SessionPath = "/ui/session"
	// sessionIdle is the time after which an unused session ends, sessionLife the time after which any session ends.
	sessionIdle = 12 * time.Hour
	sessionLife = 7 * 24 * time.Hour
	// sessionRenewal is the age from which a used session gets a new cookie.
	sessionRenewal = 10 * time.Minute
	// sessionScheme is the scheme of the Authorization header that stands for a cookie inside the server.
	sessionScheme = "Outbid-Session"
)

// session is a signed-in browser: a token, named by the first bytes of its hash, and two times. Its signature is made
// with a key that follows from the token's hash. So no server keeps anything, a standby accepts it too, and it ends when
// the token is removed.
type session struct {
	token          [8]byte
	began, renewed time.Time
}

// encode returns the cookie's value.
func (s session) encode(hash [sha256.Size]byte) string {
	data := make([]byte, 0, 24+sha256.Size)
	data = append(data, s.token[:]...)
	data = binary.BigEndian.AppendUint64(data, uint64(s.began.Unix()))   //nolint:gosec // after 1970
	data = binary.BigEndian.AppendUint64(data, uint64(s.renewed.Unix())) //nolint:gosec // after 1970
	return base64.RawURLEncoding.EncodeToString(append(data, sessionSum(hash, data)...))
}

func sessionSum(hash [sha256.Size]byte, data []byte) []byte {
	return signature(hash, "outbid dashboard session", data)
}

// signature returns the signature of data for one purpose, with a key that follows from a token's hash.
func signature(hash [sha256.Size]byte, purpose string, data []byte) []byte {
	key := hmac.New(sha256.New, hash[:])
	key.Write([]byte(purpose))
	sum := hmac.New(sha256.New, key.Sum(nil))
	sum.Write(data)
	return sum.Sum(nil)
}

// session returns the session of a cookie's value, the hash of its token, and its holder; false if it is forged, has ended, or its
// token is unknown.
func (t *Tokens) session(value string, now time.Time) (s session, e tokenEntry, ok bool) {
	data, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil || len(data) != 24+sha256.Size {
		return s, e, false
	}
	copy(s.token[:], data)
	s.began = time.Unix(int64(binary.BigEndian.Uint64(data[8:])), 0)    //nolint:gosec // signed below
	s.renewed = time.Unix(int64(binary.BigEndian.Uint64(data[16:])), 0) //nolint:gosec // signed below
	for _, e = range t.all() {
		if subtle.ConstantTimeCompare(e.hash[:8], s.token[:]) == 1 && hmac.Equal(sessionSum(e.hash, data[:24]), data[24:]) {
			return s, e, e.isValid(now) && now.Before(s.began.Add(sessionLife)) && now.Before(s.renewed.Add(sessionIdle))
		}
	}
	return s, tokenEntry{}, false
}

// sessions signs browsers in and out, and turns their cookies into Authorization headers.
type sessions struct {
	tokens *Tokens
	// provider is nil without an identity provider.
	provider *SignIn
	secure   bool
	now      func() time.Time
	used     usedCodes
	// record adds a sign-in, or its denial, to the audit; it may be nil.
	record func(r *http.Request, who Principal, denied error)
}

// cookie returns the cookie with a value. Browsers share cookies between the ports of a host, so its name has the port.
func (s *sessions) cookie(r *http.Request, value string, life time.Duration) *http.Cookie {
	name := "outbid"
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		name += "-" + port
	}
	if s.secure {
		name = "__Host-" + name
	}
	return &http.Cookie{
		Name: name, Value: value, Path: "/", HttpOnly: true, Secure: s.secure, SameSite: http.SameSiteStrictMode, MaxAge: int(life.Seconds()),
	}
}

// admit gives a request the Authorization of its cookie, unless the request has one itself. It removes the scheme from
// requests that have it.
func (s *sessions) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := r.Header.Get("Authorization")
		if kind, _, _ := strings.Cut(header, " "); strings.EqualFold(kind, sessionScheme) {
			r.Header.Del("Authorization")
			header = ""
		}
		if s.tokens != nil && header == "" {
			s.use(w, r)
		}
		next.ServeHTTP(w, r)
	})
}

func (s *sessions) use(w http.ResponseWriter, r *http.Request) {
	c, err := r.Cookie(s.cookie(r, "", 0).Name)
	if err != nil {
		return
	}
	now := s.now()
	if strings.HasPrefix(c.Value, signInPrefix) {
		r.Header.Set("Authorization", sessionScheme+" "+c.Value)
		return
	}
	held, entry, ok := s.tokens.session(c.Value, now)
	if !ok {
		return
	}
	r.Header.Set("Authorization", sessionScheme+" "+c.Value)
	if now.Sub(held.renewed) > sessionRenewal {
		held.renewed = now
		http.SetCookie(w, s.cookie(r, held.encode(entry.hash), sessionLife))
	}
}

// signIn answers a POST of {"token": TEXT}, or {"code": TEXT} with a code of NewSignInCode, with a cookie.
func (s *sessions) signIn(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Token string `json:"token"`
		Code  string `json:"code"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<10)).Decode(&body); err != nil {
		writeError(w, fieldError("token", "the body must be {\"token\": TEXT}: %v", err))
		return
	}
	if s.tokens == nil {
		writeError(w, status.Error(codes.FailedPrecondition, "this server asks for no tokens"))
		return
	}
	now := s.now()
	holder, err := s.holder(strings.TrimSpace(body.Token), body.Code, now)
	if s.record != nil {
		s.record(r, holder.who, err)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	begun := session{began: now, renewed: now}
	copy(begun.token[:], holder.hash[:])
	http.SetCookie(w, s.cookie(r, begun.encode(holder.hash), sessionLife))
	who := holder.who
	writeJSON(w, http.StatusOK, map[string]string{"name": who.Name, "tenant": who.Tenant, "role": string(who.Role)})
}

// holder returns whose token or code it is.
func (s *sessions) holder(token, code string, now time.Time) (tokenEntry, error) {
	if code != "" {
		e, ok := s.tokens.code(code, now)
		if !ok || !s.used.use(code, now) {
			return e, status.Error(codes.Unauthenticated, "the link was used before or is older than a minute: run 'outbid ui' again, or sign in with a token")
		}
		return e, nil
	}
	who, ok := s.tokens.find(token)
	if !ok {
		return tokenEntry{}, status.Error(codes.Unauthenticated, "the token is not known to this server")
	}
	return tokenEntry{hash: sha256.Sum256([]byte(token)), who: who}, nil
}

// signOut removes the cookie.
func (s *sessions) signOut(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, s.cookie(r, "", -time.Second))
	w.WriteHeader(http.StatusNoContent)
}

// sessionHolder returns whose session an Authorization value of sessionScheme holds.
func (t *Tokens) sessionHolder(value string, now time.Time) (Principal, error) {
	if _, e, ok := t.session(value, now); ok {
		return e.who, nil
	}
	return Principal{}, status.Error(codes.Unauthenticated, "the session has ended: sign in again")
}
