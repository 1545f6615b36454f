package console

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/caddymodule/metrics"
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/payments"
)

// webhook returns the request as adapters read it.
func (req *request) webhook() (payments.Webhook, *fault.Fault) {
	q := query.Of(req.r)
	return payments.Webhook{Method: req.r.Method, Header: req.r.Header, Query: q.Values, Now: req.runtime.Store.Now(), Body: req.body}, q.Fault
}

// checkHead refuses a webhook that is not from the service, if the head shows it. Nothing
// of the body has been read.
func (req *request) checkHead() *fault.Fault {
	provider, f := req.provider()
	if f != nil {
		return f
	}
	checker, ok := provider.(payments.HeadChecker)
	if !ok {
		return nil
	}
	w, f := req.webhook()
	if f != nil {
		return f
	}
	if err := checker.CheckHead(w); err != nil {
		return req.refuseNotice(err)
	}
	return nil
}

// refuseNotice refuses a notice that does not authenticate the service.
func (req *request) refuseNotice(why error) *fault.Fault {
	req.console.app.Metrics().Notice(req.r.PathValue("provider"), metrics.NoticeRefused)
	req.console.logger.Warn("a payment webhook was refused", zap.String("request_id", req.id),
		zap.String("provider", req.r.PathValue("provider")), zap.String("address", auth.Network(req.r)), zap.Error(why))
	return fault.New(fault.InvalidParameter, "%v", payments.ErrSignature)
}

// takeNotice applies the notice of a payment service, and acknowledges it when the change is
// durable. The service repeats a notice that is not acknowledged. A notice is refused only
// if it does not authenticate the service, or if the store fails.
func takeNotice(req *request) (any, error) {
	name := req.r.PathValue("provider")
	provider, f := req.provider()
	if f != nil {
		return nil, f
	}
	w, f := req.webhook()
	if f != nil {
		return nil, f
	}
	notice, err := provider.Read(w)
	if errors.Is(err, payments.ErrSignature) {
		return nil, req.refuseNotice(err)
	}
	req.endGrant()
	if err != nil {
		// The signature is valid, so the service would repeat the same body.
		notice = unreadable(req.r, req.body, err)
	}
	outcome, err := req.runtime.Billing.Apply(req.r.Context(), name, notice)
	if err != nil {
		req.console.app.Metrics().Notice(name, metrics.NoticeFailed)
		req.console.logger.Error("a payment webhook could not be applied; the service must send it again",
			zap.String("request_id", req.id), zap.String("provider", name), zap.String("event", notice.Event), zap.Error(err))
		return nil, fault.New(fault.StoreUnavailable, "the notice could not be recorded; send it again").After(5 * time.Second)
	}
	req.console.app.Metrics().Notice(name, outcome.Result)
	body, contentType := provider.Acknowledgement()
	req.write(contentType, []byte(body))
	return nil, nil
}

// unreadable returns the notice for a webhook that has a valid signature and cannot be read.
// It changes nothing and is listed for the operator. Its name is a hash of the content, so
// that a repeated webhook is listed once.
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
