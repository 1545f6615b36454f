package demo

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"time"

	"github.com/caddy-modelgate/modelgate/payments"
)

//go:embed page.html
var pageSource string

var pageTemplate = template.Must(template.New("page").Parse(pageSource))

// policy allows the page only to show itself and to send its form.
const policy = "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// maxForm is the maximum size of a form in bytes.
const maxForm = 1 << 10

// action is a button of the page.
type action struct {
	label   string
	kind    payments.Kind
	delayed bool
	done    string   // text of the next page
	next    []string // buttons of the next page
}

// actions are the buttons by the value that their form sends. Each may be sent at any time, because a
// service may send any notice at any time. But a paid order cannot be declined.
var actions = map[string]action{
	"pay":     {label: "Pay", kind: payments.Paid, done: "The order is paid.", next: paid},
	"delay":   {label: "Pay later", kind: payments.Paid, delayed: true, done: "The notice of the payment will be sent later.", next: paid},
	"decline": {label: "Decline", kind: payments.Failed, done: "The payment was declined.", next: retry},
	"refund":  {label: "Refund", kind: payments.Refunded, done: "The money was given back to the payer."},
	"dispute": {label: "Dispute", kind: payments.Disputed, done: "The payer disputes the payment, and the money was taken back.", next: []string{"restore"}},
	"restore": {label: "Win the dispute", kind: payments.Restored, done: "The dispute was won, and the money was returned.", next: paid},
}

// The buttons of a new page, after a declined payment, and after a payment.
var (
	opened = []string{"pay", "decline", "delay"}
	retry  = []string{"pay", "delay"}
	paid   = []string{"refund", "dispute"}
)

// lastAction maps the state of an order to the action that leads to it.
var lastAction = map[payments.Kind]string{
	payments.Paid: "pay", payments.Failed: "decline", payments.Refunded: "refund", payments.Disputed: "dispute",
}

// stateOf returns the page's text about the state of an order, and its buttons.
func (d *Demo) stateOf(o payments.Order) (outcome string, buttons []string) {
	last, known := actions[lastAction[o.State]]
	switch {
	case known && (hasBeenPaid(o) || !d.expired(o)):
		return last.done, last.next
	case d.expired(o):
		return "The order has expired.", nil
	}
	return "", opened
}

// hasBeenPaid reports whether the order was paid, also if the payment was refunded or disputed.
func hasBeenPaid(o payments.Order) bool { return o.State != "" && o.State != payments.Failed }

// ServePage implements payments.Pager. A GET shows the order and changes nothing. A POST of the
// page's own form sends a notice to the webhook.
//
// The form of another site must not pay. The caller should refuse cross-origin requests. The page
// also refuses them, because it has no other protection.
func (d *Demo) ServePage(w http.ResponseWriter, r *http.Request, o payments.Order) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		outcome, buttons := d.stateOf(o)
		d.show(w, http.StatusOK, o, outcome, buttons)
	case http.MethodPost:
		if err := new(http.CrossOriginProtection).Check(r); err != nil {
			d.show(w, http.StatusForbidden, o, "This form was sent by another site. Nothing was done.", nil)
			return
		}
		d.act(w, r, o)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		d.show(w, http.StatusMethodNotAllowed, o, "This page accepts GET and POST.", nil)
	}
}

// act performs the action of a button.
func (d *Demo) act(w http.ResponseWriter, r *http.Request, o payments.Order) {
	name, ok := readAction(w, r)
	a, known := actions[name]
	_, buttons := d.stateOf(o)
	switch {
	case !ok || !known:
		d.show(w, http.StatusBadRequest, o, "The form has no known action. Nothing was done.", buttons)
		return
	case a.kind == payments.Failed && hasBeenPaid(o):
		d.show(w, http.StatusConflict, o, "The order was paid already. Nothing was done.", buttons)
		return
	case a.kind == payments.Paid && !hasBeenPaid(o) && d.expired(o):
		d.show(w, http.StatusConflict, o, "The order has expired. Nothing was done.", nil)
		return
	}
	if a.delayed {
		if err := d.deliverLater(a.kind, o); err != nil {
			d.show(w, http.StatusServiceUnavailable, o, "Nothing was done: "+err.Error()+".", buttons)
			return
		}
		d.show(w, http.StatusAccepted, o, a.done, a.next)
		return
	}
	if err := d.deliver(a.kind, o); err != nil {
		d.show(w, http.StatusBadGateway, o, "The gateway did not accept the notice: "+err.Error()+".", []string{name})
		return
	}
	if a.kind == payments.Paid && hasBeenPaid(o) { // a repeated payment, which changes nothing
		outcome, buttons := d.stateOf(o)
		d.show(w, http.StatusOK, o, outcome, buttons)
		return
	}
	d.show(w, http.StatusOK, o, a.done, a.next)
}

// readAction returns the action of a form, or false if the form has any other content.
func readAction(w http.ResponseWriter, r *http.Request) (string, bool) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" {
		return "", false
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return "", false
	}
	if len(r.PostForm) != 1 || len(r.PostForm["action"]) != 1 {
		return "", false
	}
	return r.PostForm.Get("action"), true
}

// expired reports whether the page accepts no more payments for an order.
func (d *Demo) expired(o payments.Order) bool { return !d.now().Before(o.Expires) }

// button is an action on the page.
type button struct{ Action, Label string }

// show writes the page with an outcome and the buttons of the named actions.
func (d *Demo) show(w http.ResponseWriter, status int, o payments.Order, outcome string, names []string) {
	buttons := make([]button, len(names))
	for i, name := range names {
		buttons[i] = button{name, actions[name].label}
		if actions[name].delayed {
			buttons[i].Label = fmt.Sprintf("Pay in %s", time.Duration(d.Delay))
		}
	}
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, struct {
		payments.Order
		Outcome string
		Buttons []button
	}{o, outcome, buttons}); err != nil {
		http.Error(w, "the page cannot be shown", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "same-origin")
	w.WriteHeader(status)
	_, _ = page.WriteTo(w) // fails for a HEAD request or a closed connection
}
