// Package dashboard serves the web pages of Outbid, which are built from web/ and embedded in the binary.
package dashboard

import (
	"bytes"
	"embed"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

// Path is where the pages are served.
const Path = "/ui/"

//go:embed all:dist
var embedded embed.FS

// policy allows scripts, styles and calls of this server alone, and no frame around the pages.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"font-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// Handler serves the pages below Path. Every path without a file is the path of a page, which index.html shows.
func Handler() http.Handler {
	files, err := fs.Sub(embedded, "dist")
	if err != nil {
		return http.NotFoundHandler() // the directory is embedded
	}
	return http.StripPrefix(strings.TrimSuffix(Path, "/"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve(w, r, files)
	}))
}

func serve(w http.ResponseWriter, r *http.Request, files fs.FS) {
	name := strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/")
	data, err := fs.ReadFile(files, name)
	switch {
	case err == nil && name != "index.html":
	case strings.HasPrefix(name, "assets/"):
		http.NotFound(w, r)
		return
	default:
		depth := strings.Count(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if data, err = index(files, depth); err != nil {
			http.Error(w, "this binary was built without the dashboard's files: run make dashboard, then make build", http.StatusNotImplemented)
			return
		}
		name = "index.html"
	}
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	if kind := mime.TypeByExtension(path.Ext(name)); kind != "" {
		h.Set("Content-Type", kind)
	}
	h.Set("Cache-Control", "no-cache")
	if strings.HasPrefix(name, "assets/") { // their names have a hash of what they hold
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
}

// ForBrowsers sends browsers from / to the pages, and other clients to next.
func ForBrowsers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept")
		if strings.Contains(r.Header.Get("Accept"), "text/html") {
			// Relative, so that it works behind a path prefix.
			w.Header().Set("Location", strings.TrimPrefix(Path, "/"))
			w.WriteHeader(http.StatusFound)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// index returns index.html for a page the given number of folders below Path. Its URLs are relative, so that the pages
// work behind a path prefix.
func index(files fs.FS, depth int) ([]byte, error) {
	data, err := fs.ReadFile(files, "index.html")
	if err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(data, []byte(`="./`), []byte(`="./`+strings.Repeat("../", depth))), nil
}
