package console

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/payments"
)

// webhook is the way of what payment services send.
func (req *request) webhook(rows table) {
	req.run(func() error {
		if f := req.listens(); f != nil {
			return f
		}
		return req.serve(rows)
	})
}

// listens refuses what no configured service sends.
func (req *request) listens() *fault.Fault {
	provider, f := req.provider(req.r.PathValue("provider"))
	if f != nil {
		return f
	}
	if methods := provider.Methods(); !slices.Contains(methods, req.r.Method) {
		return notAllowed(methods)
	}
	return nil
}

// head is all of a webhook but its body.
func (req *request) head() (w payments.Webhook, f *fault.Fault) {
	query, err := url.ParseQuery(req.r.URL.RawQuery)
	if err != nil {
		return w, fault.New(fault.InvalidParameter, "the query cannot be read")
	}
	return payments.Webhook{Method: req.r.Method, Header: req.r.Header, Query: query, Now: req.runtime.Store.Now()}, nil
}

// checkHead refuses a webhook whose head tells that it is not from the service,
// before anything of the body is read.
func (req *request) checkHead() *fault.Fault {
	name := req.r.PathValue("provider")
	provider, f := req.provider(name)
	if f != nil {
		return f
	}
	checker, ok := provider.(payments.HeadChecker)
	if !ok {
		return nil
	}
	w, f := req.head()
	if f != nil {
		return f
	}
	if err := checker.CheckHead(w); err != nil {
		return req.unproved(name, err)
	}
	return nil
}

// unproved refuses what is not proved to be from a service.
func (req *request) unproved(provider string, why error) *fault.Fault {
	req.console.logger.Warn("a payment webhook was refused", zap.String("request_id", req.id),
		zap.String("provider", provider), zap.String("address", auth.Network(req.r)), zap.Error(why))
	return fault.New(fault.InvalidParameter, "%v", payments.ErrSignature)
}

// takeNotice does what a payment service tells, and acknowledges it once that
// is durable. What is not acknowledged the service sends again: so nothing is
// refused but what is not proved to be from it, and what the store cannot take.
func takeNotice(req *request) error {
	name := req.r.PathValue("provider")
	provider, f := req.provider(name)
	if f != nil {
		return f
	}
	w, f := req.head()
	if f != nil {
		return f
	}
	w.Body = req.body
	notice, err := provider.Read(w)
	if errors.Is(err, payments.ErrSignature) {
		return req.unproved(name, err)
	}
	req.proved()
	if err != nil {
		// It comes from the service, and would be as unreadable the next time.
		notice = unreadable(req.r, req.body, err)
	}
	if _, err := req.runtime.Billing.Apply(req.r.Context(), name, notice); err != nil {
		req.console.logger.Error("a payment webhook could not be applied, and will have to be sent again",
			zap.String("request_id", req.id), zap.String("provider", name), zap.String("event", notice.Event), zap.Error(err))
		return fault.New(fault.StoreUnavailable, "the notice could not be recorded; send it again").After(5 * time.Second)
	}
	body, contentType := provider.Acknowledgement()
	req.write(contentType, []byte(body))
	return nil
}

// unreadable is a notice that is signed well and cannot be read: it does
// nothing, and is listed for the operator. What it says is its name, so that it
// is listed once however often it is sent.
func unreadable(r *http.Request, body []byte, why error) payments.Notice {
	hash := sha256.New()
	_, _ = io.WriteString(hash, r.URL.RawQuery+"\n")
	_, _ = hash.Write(body)
	return payments.Notice{
		Kind:     payments.Ignored,
		Event:    "unreadable-" + hex.EncodeToString(hash.Sum(nil)),
		Mismatch: "it is signed well and cannot be read: " + why.Error(),
	}
}
