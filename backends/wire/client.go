// Package wire sends the HTTP requests of adapters to generation services. A
// [Client] sends each [Call] once and limits its [Response], which is untrusted
// input. One table in outcome.go maps the result of a call to what it means for
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

// MaxResponse is the maximum length of an answer in bytes, after long strings
// were cut. The answer to a submission may also repeat the request. Answers
// usually have a few KiB, because they contain URLs instead of files.
const MaxResponse = 4 << 20

// An answer may repeat the request, which has at most 16 MiB, with each byte
// written as six, such as \u003c.
const (
	repeated = 6
	maxRead  = MaxResponse + repeated*(16<<20)
)

// Time limits of a call. A submission without an answer by then is Unconfirmed.
const (
	submitTimeout = 30 * time.Second
	pollTimeout   = 20 * time.Second
	dialTimeout   = 10 * time.Second
)

// Client calls one service with one credential. Its methods may be called
// concurrently.
type Client struct {
	// Service is the name of the service in logs.
	Service string

	// Base is the base URL, without a trailing slash.
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

	submitClient, client *http.Client
}

// Connect returns c with its own connections, which Close closes. The client
// ignores the proxies of the environment and does not follow redirects, so it
// sends the credential to Base only. Each submission opens a new connection,
// because Go repeats requests that fail on a reused one.
func Connect(c Client) *Client {
	c.Base = strings.TrimRight(c.Base, "/")
	c.submitClient = &http.Client{Transport: transport(true), CheckRedirect: noRedirect}
	c.client = &http.Client{Transport: transport(false), CheckRedirect: noRedirect}
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

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Close closes idle connections. c may be nil. It returns no error.
func (c *Client) Close() error {
	if c != nil {
		c.submitClient.CloseIdleConnections()
		c.client.CloseIdleConnections()
	}
	return nil
}

// Bearer is an Authorize for services with a bearer token.
func Bearer(secret settings.Secret) func(*http.Request, []byte) {
	return func(r *http.Request, _ []byte) { r.Header.Set("Authorization", "Bearer "+secret.Reveal()) }
}

// Call is one request.
type Call struct {
	Operation Operation
	Method    string // if empty: GET without a body, POST with one
	URL       string // absolute
	Header    http.Header
	Body      []byte // JSON, unless the header says otherwise
}

// Response is a complete answer.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Do sends a call and reads its answer. If the status is not 2xx, it returns
// the answer with a [backends.Error].
func (c *Client) Do(ctx context.Context, call Call) (Response, error) {
	timeout := pollTimeout
	if call.Operation == Submitting {
		timeout = submitTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	response, err := c.send(ctx, call)
	if err != nil {
		return Response{}, err
	}
	defer response.Body.Close()
	answer := Response{Status: response.StatusCode, Header: response.Header}
	limit := MaxResponse
	if call.Operation == Submitting {
		limit += repeated * len(call.Body)
	}
	answer.Body, err = readResponse(response.Body, limit)
	switch {
	case answer.Status/100 != 2:
		// The status decides; an incomplete body only explains less.
		return answer, c.statusError(call.Operation, answer)
	case err != nil:
		return answer, c.incomplete(call.Operation, fmt.Sprintf("the answer is incomplete: %v", err))
	case len(answer.Body) > limit:
		return answer, c.incomplete(call.Operation, fmt.Sprintf("the answer is longer than %d bytes", limit))
	}
	return answer, nil
}

// Read is [Client.Do], and decodes the answer as [Client.Decode] does.
func (c *Client) Read(ctx context.Context, call Call, into any) (Response, error) {
	answer, err := c.Do(ctx, call)
	if err != nil {
		return answer, err
	}
	return answer, c.Decode(call.Operation, answer, into)
}

// readResponse reads an answer and cuts its long strings. It returns at most
// limit+1 bytes, so that the caller can detect a longer answer. It returns an
// error if the answer is longer than maxRead before strings are cut.
func readResponse(body io.Reader, limit int) ([]byte, error) {
	limited := &io.LimitedReader{R: body, N: maxRead + 1}
	answer, err := io.ReadAll(io.LimitReader(&truncatingReader{from: limited}, int64(limit)+1))
	if err == nil && limited.N == 0 {
		err = fmt.Errorf("it is longer than %d bytes", maxRead)
	}
	return answer, err
}

// Open sends a call whose answer is a file. The caller closes it. A status
// other than 200 is an error.
func (c *Client) Open(ctx context.Context, call Call) (io.ReadCloser, backends.Content, error) {
	response, err := c.send(ctx, call)
	if err != nil {
		return nil, backends.Content{}, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(response.Body, MaxResponse))
		answer := Response{Status: response.StatusCode, Header: response.Header, Body: body}
		if answer.Status/100 == 2 {
			return nil, backends.Content{}, c.incomplete(call.Operation, fmt.Sprintf("status %d has no file", answer.Status))
		}
		return nil, backends.Content{}, c.statusError(call.Operation, answer)
	}
	return response.Body, backends.Content{
		Type: backends.Text(response.Header.Get("Content-Type")),
		Size: response.ContentLength,
	}, nil
}

// OpenOnly opens the only result of a job, which is at address. index is the number of the result
// that is wanted, from 0.
func (c *Client) OpenOnly(ctx context.Context, address string, index int) (io.ReadCloser, backends.Content, error) {
	if index != 0 {
		return nil, backends.Content{}, &backends.Error{
			Kind: backends.Gone, Reason: backends.UpstreamError, Message: "a job has one result",
		}
	}
	return c.Open(ctx, Call{Operation: Fetching, URL: address, Header: http.Header{"Accept": {"*/*"}}})
}

// send sends a call once. Its error is a [backends.Error].
func (c *Client) send(ctx context.Context, call Call) (*http.Response, error) {
	method := cmp.Or(call.Method, http.MethodGet)
	if call.Method == "" && call.Body != nil {
		method = http.MethodPost
	}
	// If there was no connection, the request was not sent. Otherwise its outcome is unknown.
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
	client := c.client
	if call.Operation == Submitting {
		client = c.submitClient
	}
	response, err := client.Do(r)
	if err != nil {
		return nil, c.transportError(call.Operation, connected.Load(), err)
	}
	return response, nil
}

// accountBytes is the length of a stored credential fingerprint, which only has
// to differ between the operator's accounts.
const accountBytes = 8

// account returns the fingerprint of the credential.
func (c *Client) account() string {
	mac := hmac.New(sha256.New, []byte("modelgate backend account"))
	mac.Write([]byte(c.Secret))
	return hex.EncodeToString(mac.Sum(nil)[:accountBytes])
}

// Ref returns the reference of a job that the service has accepted. If the id is
// invalid, it returns an Unconfirmed error, because the job exists and cannot be
// polled.
func (c *Client) Ref(kind, id string) (backends.Ref, error) {
	if !backends.IsID(id) {
		return backends.Ref{}, c.incomplete(Submitting, "the answer has no valid id of a job")
	}
	return backends.Ref{ID: id, Kind: kind, Base: c.Base, Account: c.account()}, nil
}

// At returns the base URL at which a job is polled: the one to which it was
// submitted. If that is not the configured URL and the credential has changed, At
// returns an error.
func (c *Client) At(ref backends.Ref) (string, error) {
	if ref.Base == c.Base || ref.Base == "" {
		return c.Base, nil
	}
	if ref.Account != c.account() {
		return "", &backends.Error{
			Kind: backends.Refused, Reason: backends.UpstreamError, Message: messageFailed,
			Detail: "the job was sent to " + backends.Text(ref.Base) + " with a credential that is no longer configured",
		}
	}
	return ref.Base, nil
}
