package demo

import (
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/payments/paymentstest"
)

// signedBody returns a webhook with a body that d signs at the time at.
func signedBody(d *Demo, id, body string, at time.Time) payments.Webhook {
	w := payments.Webhook{Method: http.MethodPost, Header: make(http.Header), Body: []byte(body), Now: paymentstest.Now}
	d.sign(w.Header, id, at, w.Body)
	return w
}

// delivery returns the webhook of a notice that d signs at the time at.
func delivery(d *Demo, kind payments.Kind, o payments.Order, at time.Time) payments.Webhook {
	id, body, err := write(kind, o)
	if err != nil {
		panic(err)
	}
	return signedBody(d, id, string(body), at)
}

func TestNoticesHaveTheWholeAmount(t *testing.T) {
	t.Parallel()
	d := provisioned(t)
	for kind := range kinds {
		got, err := d.Read(delivery(d, kind, order("https://ai.example.com/webhook"), paymentstest.Now))
		want := payments.Notice{
			Kind: kind, Event: string(kind) + "_" + paymentstest.TradeNo,
			TradeNo: paymentstest.TradeNo, Payment: "pay_" + paymentstest.TradeNo,
			Amount: paymentstest.Amount("9.90"), Currency: "USD",
		}
		if kind == payments.Disputed || kind == payments.Restored {
			want.Dispute = "dispute_" + paymentstest.TradeNo
		}
		if err != nil || got != want {
			t.Errorf("got %+v (%v), want %+v", got, err, want)
		}
		paymentstest.CheckNotice(t, got)
	}
}

func TestOnlySignedAndTimelyNoticesAreRead(t *testing.T) {
	t.Parallel()
	d := provisioned(t)
	now := paymentstest.Now
	at := func(age time.Duration) payments.Webhook {
		return delivery(d, payments.Paid, order("https://ai.example.com/webhook"), now.Add(-age))
	}
	with := func(name string, values ...string) payments.Webhook {
		w := at(0)
		w.Header[name] = values
		return w
	}
	body := at(0)
	body.Body = append(body.Body, ' ')
	signature := at(0).Header.Get(signatureHeader)
	for _, row := range []struct {
		name    string
		webhook payments.Webhook
		good    bool
	}{
		{"now", at(0), true},
		{"300 seconds old", at(300 * time.Second), true},
		{"301 seconds old", at(301 * time.Second), false},
		{"300 seconds ahead", at(-300 * time.Second), true},
		{"301 seconds ahead", at(-301 * time.Second), false},
		{"another secret", delivery(&Demo{Secret: "other"}, payments.Paid, order(""), now), false},
		{"an empty secret", delivery(&Demo{}, payments.Paid, order(""), now), false},
		{"another body", body, false},
		{"another id", with(idHeader, "paid_x"), false},
		{"another time", with(timeHeader, strconv.FormatInt(now.Unix()+1, 10)), false},
		{"no id", with(idHeader), false},
		{"two ids", with(idHeader, "a", "b"), false},
		{"an empty id", with(idHeader, ""), false},
		{"an id that is too long", with(idHeader, strings.Repeat("x", 256)), false},
		{"no time", with(timeHeader), false},
		{"an invalid time", with(timeHeader, "now"), false},
		{"a negative time", with(timeHeader, "-1"), false},
		{"a time that overflows", with(timeHeader, "9223372036854775807"), false},
		{"no signature", with(signatureHeader), false},
		{"an empty signature", with(signatureHeader, ""), false},
		{"two signatures", with(signatureHeader, signature, signature), false},
		{"two signatures in one header", with(signatureHeader, signature+" "+signature), false},
		{"another version", with(signatureHeader, "v2"+signature[2:]), false},
		{"half a signature", with(signatureHeader, signature[:20]), false},
	} {
		n, err := d.Read(row.webhook)
		if row.good && err != nil || !row.good && !errors.Is(err, payments.ErrSignature) {
			t.Errorf("%s: got %+v, %v", row.name, n, err)
		}
	}
	if n, err := new(Demo).Read(delivery(&Demo{}, payments.Paid, order(""), now)); !errors.Is(err, payments.ErrSignature) {
		t.Errorf("without a secret: got %+v, %v", n, err)
	}
}

func TestSignedInvalidBodiesAreNotSignatureErrors(t *testing.T) {
	t.Parallel()
	d := provisioned(t)
	id, good, err := write(payments.Disputed, order(""))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"another id":               {`"id":"disputed_`, `"id":"paid_`},
		"no order":                 {`"trade_no":"0`, `"trade_no":"-`},
		"no payment":               {`"payment":"pay_`, `"payment":" `},
		"no dispute":               {`"dispute":"dispute_` + paymentstest.TradeNo + `",`, ``},
		"a payment with a dispute": {`"type":"disputed"`, `"type":"paid"`},
		"a dispute with a space":   {`"dispute":"dispute_`, `"dispute":" `},
		"an amount of zero":        {`"9.90"`, `"0"`},
		"a negative amount":        {`"9.90"`, `"-9.90"`},
		"a JSON number":            {`"9.90"`, `9.90`},
		"a currency in words":      {`"USD"`, `"dollars"`},
		"a lower-case currency":    {`"USD"`, `"usd"`},
		"trailing bytes":           {`}}`, `}}}`},
		"an empty body":            {string(good), ``},
	} {
		body := strings.Replace(string(good), change[0], change[1], 1)
		if body == string(good) {
			t.Fatalf("%s: the body is unchanged", name)
		}
		n, err := d.Read(signedBody(d, id, body, paymentstest.Now))
		if err == nil || errors.Is(err, payments.ErrSignature) {
			t.Errorf("%s: got %+v, %v", name, n, err)
		}
	}
	body := strings.Replace(string(good), `"type":"disputed"`, `"type":"teleported"`, 1)
	if n, err := d.Read(signedBody(d, id, body, paymentstest.Now)); err != nil || n.Kind != payments.Ignored {
		t.Errorf("an unknown kind: got %+v, %v", n, err)
	}
}

// FuzzSignature checks that headers made without the secret are refused.
func FuzzSignature(f *testing.F) {
	f.Add("paid_1", "1800000000", "v1,AAAA")
	f.Add("", "+1", "")
	d := provisioned(f)
	good := delivery(d, payments.Paid, order(""), paymentstest.Now)
	f.Fuzz(func(t *testing.T, id, at, signature string) {
		w := good
		w.Header = maps.Clone(good.Header)
		w.Header[idHeader] = []string{id}
		w.Header[timeHeader] = []string{at}
		w.Header[signatureHeader] = []string{signature}
		if n, err := d.Read(w); !errors.Is(err, payments.ErrSignature) {
			t.Errorf("got %+v, %v", n, err)
		}
	})
}

// FuzzNotice checks the notices for any correctly signed body.
func FuzzNotice(f *testing.F) {
	d := provisioned(f)
	for kind := range kinds {
		id, body, err := write(kind, order(""))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(id, string(body))
	}
	f.Fuzz(func(t *testing.T, id, body string) {
		n, err := d.Read(signedBody(d, id, body, paymentstest.Now))
		if errors.Is(err, payments.ErrSignature) == payments.IsReference(id) {
			t.Errorf("%q, %q: %v", id, body, err)
		}
		if err == nil {
			paymentstest.CheckNotice(t, n)
		}
	})
}
