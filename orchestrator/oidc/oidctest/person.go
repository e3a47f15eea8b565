package oidctest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// Browser returns a client that keeps cookies. Like a browser it sends secure ones to loopback without TLS.
func Browser() *http.Client {
	jar, _ := cookiejar.New(nil) // without options it returns no error
	return &http.Client{Jar: loopbackJar{jar}, Timeout: time.Minute}
}

type loopbackJar struct{ http.CookieJar }

// SetCookies implements http.CookieJar.
func (j loopbackJar) SetCookies(u *url.URL, cookies []*http.Cookie) {
	for _, c := range cookies {
		c.Secure = false
	}
	j.CookieJar.SetCookies(u, cookies)
}

// SignIn opens a provider's link and sends its forms as a person does. It returns the address and text of the page on which
// that ends.
func SignIn(browser *http.Client, link, name string) (at, page string, err error) {
	resp, err := browser.Get(link)
	for range 8 {
		if err != nil {
			return at, page, fmt.Errorf("sign in: %w", err)
		}
		body, readErr := io.ReadAll(resp.Body)
		if resp.Body.Close(); readErr != nil {
			return at, page, fmt.Errorf("sign in: %w", readErr)
		}
		at, page = resp.Request.URL.String(), string(body)
		action, fields := form(page, name)
		if action == "" {
			return at, page, nil
		}
		target, parseErr := resp.Request.URL.Parse(action)
		if parseErr != nil {
			return at, page, fmt.Errorf("sign in: %w", parseErr)
		}
		resp, err = browser.PostForm(target.String(), fields)
	}
	return at, page, fmt.Errorf("sign in: %s asks for more and more: %s", at, page)
}

// form returns the first form of a page, filled in; no action if the page has none.
func form(page, name string) (action string, fields url.Values) {
	head := regexp.MustCompile(`<form[^>]*action="([^"]*)"`).FindStringSubmatch(page)
	if head == nil {
		return "", nil
	}
	fields = url.Values{}
	for _, input := range regexp.MustCompile(`<(?:input|button)[^>]*>`).FindAllString(page, -1) {
		field := regexp.MustCompile(` name="([^"]+)"`).FindStringSubmatch(input)
		if field == nil || field[1] == "abort" || field[1] == "cancel" {
			continue
		}
		value := ""
		if v := regexp.MustCompile(` value="([^"]*)"`).FindStringSubmatch(input); v != nil {
			value = v[1]
		}
		switch field[1] {
		case "login", "username":
			value = name
		case "password":
			value = "x"
		}
		fields.Set(field[1], value)
	}
	if len(fields) == 0 && !strings.Contains(page, "<button") {
		return "", nil
	}
	return strings.ReplaceAll(head[1], "&amp;", "&"), fields
}
