package pages

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// call sends a request to a route below /api, as the browser of the page would, and returns the
// data of the answer: objects are map[string]any, numbers json.Number. in becomes the JSON body;
// nil: there is none. A DELETE never has one.
func (req *request) call(method, route string, in any) (data any, f *Fault) {
	target, err := url.Parse(route)
	if err != nil {
		return nil, req.internal(err)
	}
	r := req.r.Clone(req.r.Context())
	r.Method, r.URL, r.RequestURI, r.Form, r.PostForm = method, target, route, nil, nil
	// Only the session of the browser authorizes a page, never a token or a key.
	for _, name := range []string{"Authorization", "X-Api-Key", "Content-Type", "Content-Encoding", "Content-Length", "Expect", "Range", "Upgrade"} {
		r.Header.Del(name)
	}
	r.Header.Set("Accept-Language", req.locale.name)
	req.addCookies(r)
	r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, 0, nil
	if in != nil && method != http.MethodDelete {
		body, err := json.Marshal(in)
		if err != nil {
			return nil, req.internal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	if fields, _ := in.(map[string]any); fields["idempotency_key"] == nil && req.form.Get("idempotency_key") != "" && method == http.MethodPost {
		// The key is not a field of the route. A form that was changed after it was sent is for
		// something else.
		content, _ := json.Marshal(fields)
		sum := sha256.Sum256(content)
		r.Header.Set("Idempotency-Key", req.form.Get("idempotency_key")+"-"+hex.EncodeToString(sum[:8]))
	}
	answer := answer{header: make(http.Header)}
	req.site.API(&answer, r)
	req.keepCookies(answer.header)
	req.replayed = answer.header.Get("Idempotent-Replayed") == "true"
	id := answer.header.Get("X-Request-Id")
	req.w.Header().Set("X-Request-Id", id)

	var envelope struct {
		Fault
		Success bool `json:"success"`
		Data    any  `json:"data"`
	}
	decoder := json.NewDecoder(&answer.body)
	decoder.UseNumber() // numbers are shown as they are written
	if err := decoder.Decode(&envelope); err != nil {
		return nil, req.internal(err)
	}
	if !envelope.Success {
		f := envelope.Fault
		f.Status, f.RequestID = answer.status, id
		f.Message = req.forPeople(&f)
		switch f.Code { // the API names its methods, which are no words for people
		case "VERIFICATION_REQUIRED":
			f.Message = req.text("verify.needed")
		case "VERIFICATION_EXPIRED":
			f.Message = req.text("verify.expired")
		}
		if seconds, err := strconv.Atoi(answer.header.Get("Retry-After")); err == nil {
			f.Wait = time.Duration(seconds) * time.Second
		}
		return nil, &f
	}
	return envelope.Data, nil
}

// apiName matches the name of a parameter in a message of the API.
var apiName = regexp.MustCompile("`([^`]*)`")

// forPeople returns the message of a fault with the names of fields as the pages have them.
func (req *request) forPeople(f *Fault) string {
	label := func(name string) string {
		if req.locale.has("field." + name) {
			name = req.text("field." + name)
		}
		return req.text("error.quoted", name)
	}
	if f.Code == "MISSING_PARAMETER" && f.Param != "" && f.Param != "password" {
		return req.text("error.missing", label(f.Param))
	}
	message := apiName.ReplaceAllStringFunc(f.Message, func(found string) string { return label(strings.Trim(found, "`")) })
	if firstWord.MatchString(message) {
		message = sentence(message)
	}
	return message
}

// firstWord matches a message that begins with a word, not with a name of the API such as
// output.duration.
var firstWord = regexp.MustCompile("^[a-z]+ ")

// internal returns the fault of an answer that a page cannot read.
func (req *request) internal(err error) *Fault {
	return &Fault{Status: http.StatusInternalServerError, Code: "INTERNAL", Message: req.text("error.internal") + " " + err.Error()}
}

// answer is an http.ResponseWriter that keeps an answer of the API in memory.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	a.status = cmp.Or(a.status, status)
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// SetReadDeadline has no effect: the body is in memory.
func (a *answer) SetReadDeadline(time.Time) error { return nil }

// keepCookies passes the cookies of an answer on to the browser, and keeps them for further calls:
// a log-in or a step-up gives the session a new secret.
func (req *request) keepCookies(header http.Header) {
	for _, line := range header["Set-Cookie"] {
		cookie, err := http.ParseSetCookie(line)
		if err != nil {
			continue
		}
		if req.cookies == nil {
			req.cookies = make(map[string]string)
		}
		req.cookies[cookie.Name] = cookie.Value
		// A later answer may set the cookie anew; the browser gets the last one only.
		kept := req.w.Header()["Set-Cookie"][:0:0]
		for _, earlier := range req.w.Header()["Set-Cookie"] {
			if !strings.HasPrefix(earlier, cookie.Name+"=") {
				kept = append(kept, earlier)
			}
		}
		req.w.Header()["Set-Cookie"] = append(kept, line)
	}
}

// addCookies puts the kept cookies into a request.
func (req *request) addCookies(r *http.Request) {
	if len(req.cookies) == 0 {
		return
	}
	var pairs []string
	for _, cookie := range r.Cookies() {
		if _, changed := req.cookies[cookie.Name]; !changed {
			pairs = append(pairs, cookie.Name+"="+cookie.Value)
		}
	}
	for name, value := range req.cookies {
		if value != "" {
			pairs = append(pairs, name+"="+value)
		}
	}
	r.Header.Set("Cookie", strings.Join(pairs, "; "))
}
