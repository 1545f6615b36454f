// Package wire sends the HTTP requests of adapters to generation services. A
// [Client] sends each [Call] once and limits its [Answer], which is untrusted
// input. One table in outcome.go maps how a call ended to what that means for
// the job. client.go sends, outcome.go classifies, read.go decodes and input.go
// maps fields of a job. The package imports backends and settings.
package wire

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/settings"
)

// MaxAnswer is the greatest answer that is read, in bytes, but for long strings,
// which are cut, and for what a submission may repeat. Answers are some KiB
// long; they name files and do not hold them.
const MaxAnswer = 4 << 20

// An answer may repeat what was sent, which is 16 MiB at most, with each byte
// written as six: \u003c.
const (
	repeated = 6
	mostRead = MaxAnswer + repeated*(16<<20)
)

// Bounds of a call. A submission that has not been answered by then is in doubt.
const (
	submitTimeout = 30 * time.Second
	askTimeout    = 20 * time.Second
	dialTimeout   = 10 * time.Second
)

// Client calls one service with one credential.
type Client struct {
	// Service is the name of the service in logs.
	Service string

	// Base is the base URL, without a slash at its end.
	Base string

	// Secret is the credential. It is removed from every text of the service.
	Secret settings.Secret

	// Authorize adds the credential to a request whose other headers and body
	// are complete.
	Authorize func(r *http.Request, body []byte)

	// Explain decodes the body of an error. If it is nil, the body is not read.
	Explain func(status int, body []byte) Explanation

	// Params maps the service's names of fields to the paths of the gateway's
	// fields.
	Params map[string]string

	submit, ask *http.Client
}

// Connect returns c with connections of its own, which Close closes. It uses no
// proxy of the environment and follows no redirect, so the credential goes to
// Base alone. Each submission has a new connection, because Go repeats requests
// that fail on a kept one.
func Connect(c Client) *Client {
	c.Base = strings.TrimRight(c.Base, "/")
	c.submit = &http.Client{Transport: transport(true), CheckRedirect: stay}
	c.ask = &http.Client{Transport: transport(false), CheckRedirect: stay}
	return &c
}

func transport(once bool) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil
	t.DisableKeepAlives = once
	t.MaxResponseHeaderBytes = 64 << 10
	t.TLSHandshakeTimeout = dialTimeout
	t.ResponseHeaderTimeout = submitTimeout
	return t
}

func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Close closes idle connections. c may be nil.
func (c *Client) Close() {
	if c != nil {
		c.submit.CloseIdleConnections()
		c.ask.CloseIdleConnections()
	}
}

// Bearer is an Authorize for services with a bearer token.
func Bearer(secret settings.Secret) func(*http.Request, []byte) {
	return func(r *http.Request, _ []byte) { r.Header.Set("Authorization", "Bearer "+secret.Reveal()) }
}

// Call is one request.
type Call struct {
	Act    Act
	Method string // if empty: GET without a body, POST with one
	URL    string // absolute
	Header http.Header
	Body   []byte // JSON, unless the header says otherwise
}

// Answer is a whole answer.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Do sends a call and reads its answer. If the status is not 2xx, it returns
// the answer with a [backends.Error].
func (c *Client) Do(ctx context.Context, call Call) (Answer, error) {
	within := askTimeout
	if call.Act == Submitting {
		within = submitTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	response, err := c.send(ctx, call)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	answer := Answer{Status: response.StatusCode, Header: response.Header}
	most := MaxAnswer
	if call.Act == Submitting {
		most += repeated * len(call.Body)
	}
	answer.Body, err = readAnswer(response.Body, most)
	switch {
	case answer.Status/100 != 2:
		// The status is the answer; what is missing of the body explains less.
		return answer, c.judge(call.Act, answer)
	case err != nil:
		return answer, c.broken(call.Act, fmt.Sprintf("the answer broke off: %v", err))
	case len(answer.Body) > most:
		return answer, c.broken(call.Act, fmt.Sprintf("the answer is longer than %d bytes", most))
	}
	return answer, nil
}

// readAnswer reads an answer with its long strings cut, and one byte more than
// most of one that is too long. One of which too much would have to be left out
// breaks off.
func readAnswer(body io.Reader, most int) ([]byte, error) {
	whole := &io.LimitedReader{R: body, N: mostRead + 1}
	answer, err := io.ReadAll(io.LimitReader(&brief{from: whole}, int64(most)+1))
	if err == nil && whole.N == 0 {
		err = fmt.Errorf("it is longer than %d bytes", mostRead)
	}
	return answer, err
}

// Open sends a call whose answer is a file, which the caller closes. A status
// other than 2xx is an error, as in Do.
func (c *Client) Open(ctx context.Context, call Call) (io.ReadCloser, backends.Content, error) {
	response, err := c.send(ctx, call)
	if err != nil {
		return nil, backends.Content{}, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(response.Body, MaxAnswer))
		answer := Answer{Status: response.StatusCode, Header: response.Header, Body: body}
		if answer.Status/100 == 2 {
			return nil, backends.Content{}, c.broken(call.Act, fmt.Sprintf("status %d has no file", answer.Status))
		}
		return nil, backends.Content{}, c.judge(call.Act, answer)
	}
	return response.Body, backends.Content{
		Type: backends.Text(response.Header.Get("Content-Type")),
		Size: response.ContentLength,
	}, nil
}

// send sends a call once. Its error is judged.
func (c *Client) send(ctx context.Context, call Call) (*http.Response, error) {
	method := cmp.Or(call.Method, http.MethodGet)
	if call.Method == "" && call.Body != nil {
		method = http.MethodPost
	}
	// Without a connection nothing can have been sent. With one, the outcome is unknown.
	var connected atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	r, err := http.NewRequestWithContext(traced, method, call.URL, bytes.NewReader(call.Body))
	if err != nil {
		return nil, &backends.Error{
			Kind: backends.Refused, Reason: backends.UpstreamError, Message: messageFailed,
			Detail: c.clean("the request cannot be made: " + err.Error()),
		}
	}
	if call.Body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "modelgate")
	maps.Copy(r.Header, call.Header)
	if c.Authorize != nil {
		c.Authorize(r, call.Body)
	}
	client := c.ask
	if call.Act == Submitting {
		client = c.submit
	}
	response, err := client.Do(r)
	if err != nil {
		return nil, c.unanswered(call.Act, connected.Load(), err)
	}
	return response, nil
}

// accountBytes is how much of the fingerprint of a credential is stored, enough
// to tell two apart.
const accountBytes = 8

// account is the fingerprint of the credential.
func (c *Client) account() string {
	mac := hmac.New(sha256.New, []byte("modelgate backend account"))
	mac.Write([]byte(c.Secret))
	return hex.EncodeToString(mac.Sum(nil)[:accountBytes])
}

// Ref returns the reference of a job that was just accepted. If the id is
// invalid, it returns a Doubtful error: there is a job, and it cannot be
// polled.
func (c *Client) Ref(kind, id string) (backends.Ref, error) {
	if !backends.IsID(id) {
		return backends.Ref{}, c.broken(Submitting, "the answer names no job")
	}
	return backends.Ref{ID: id, Kind: kind, Base: c.Base, Account: c.account()}, nil
}

// At returns the base URL at which a job is polled: that of its submission. If
// it differs from the configured one, the credential must be unchanged.
func (c *Client) At(ref backends.Ref) (string, error) {
	if ref.Base == c.Base || ref.Base == "" {
		return c.Base, nil
	}
	if ref.Account != c.account() {
		return "", &backends.Error{
			Kind: backends.Refused, Reason: backends.UpstreamError, Message: messageFailed,
			Detail: "the job was sent to " + backends.Text(ref.Base) + " with a credential that is not configured any more",
		}
	}
	return ref.Base, nil
}
