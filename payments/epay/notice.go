package epay

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
)

// signType is the only supported kind of signature.
const signType = "MD5"

// maxParams is the maximum number of parameters of a notice. The protocol has ten.
const maxParams = 32

// Read implements payments.Provider.
func (e *Epay) Read(w payments.Webhook) (payments.Notice, error) {
	params, err := readForm(w)
	if err != nil {
		return payments.Notice{}, fmt.Errorf("%w: %w", payments.ErrSignature, err)
	}
	if err := e.verify(params); err != nil {
		return payments.Notice{}, fmt.Errorf("%w: %w", payments.ErrSignature, err)
	}
	// The URL of the payment page is signed with the same key. It lacks both
	// parameters and is not a notice.
	if params["trade_no"] == "" && params["trade_status"] == "" {
		return payments.Notice{}, fmt.Errorf("%w: a notice has trade_no and trade_status", payments.ErrSignature)
	}
	reference := params["trade_no"]
	if !payments.IsReference(reference) {
		return payments.Notice{}, errors.New("trade_no is missing, or is not 1 to 255 printable characters")
	}
	if params["trade_status"] != "TRADE_SUCCESS" {
		return payments.Notice{Kind: payments.Ignored, Event: reference}, nil
	}
	n := payments.Notice{
		Kind:     payments.Paid,
		Event:    reference,
		Payment:  reference,
		Currency: e.Currency,
	}
	if n.Amount, err = money.Parse(params["money"]); err != nil {
		return payments.Notice{}, fmt.Errorf("money: %w", err)
	}
	if n.Amount <= 0 {
		return payments.Notice{}, fmt.Errorf("money is %s, which is not more than zero", n.Amount)
	}
	if no := params["out_trade_no"]; payments.IsTradeNo(no) {
		n.TradeNo = no
	} else {
		n.Mismatch = "out_trade_no names no order of this gateway"
	}
	if params["pid"] != e.PID {
		n.Mismatch = "pid is that of another merchant"
	}
	return n, nil
}

// verify checks the signature over all parameters.
func (e *Epay) verify(params map[string]string) error {
	switch {
	case e.Key == "":
		return errors.New("no key is configured")
	case params["sign_type"] != signType:
		return errors.New("sign_type is not " + signType)
	case ambiguous(params):
		return errors.New("a parameter contains an ampersand")
	}
	want := sign(params, e.Key.Reveal())
	if subtle.ConstantTimeCompare([]byte(strings.ToLower(params["sign"])), []byte(want)) != 1 {
		return errors.New("sign was not made with the key over these parameters")
	}
	return nil
}

// readForm returns the parameters of a notice from the query of a GET or the form of a POST. Each must
// occur once, so that the parsed values are the signed ones.
func readForm(w payments.Webhook) (map[string]string, error) {
	values := w.Query
	if w.Method == http.MethodPost {
		if len(w.Query) > 0 {
			return nil, errors.New("a POST has parameters in its query")
		}
		kind, _, err := mime.ParseMediaType(w.Header.Get("Content-Type"))
		if err != nil || kind != "application/x-www-form-urlencoded" {
			return nil, errors.New("the body of a POST is not application/x-www-form-urlencoded")
		}
		if values, err = url.ParseQuery(string(w.Body)); err != nil {
			return nil, errors.New("the form cannot be read")
		}
	} else if len(w.Body) > 0 {
		return nil, errors.New("a GET has a body")
	}
	if len(values) > maxParams {
		return nil, fmt.Errorf("the notice has %d parameters; allowed: %d", len(values), maxParams)
	}
	params := make(map[string]string, len(values))
	for name, given := range values {
		if len(given) != 1 {
			return nil, fmt.Errorf("the parameter %.32q is given twice", name)
		}
		params[name] = given[0]
	}
	return params, nil
}
