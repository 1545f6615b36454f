package demo

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/payments/paymentstest"
)

// transport is an http.RoundTripper in place of the network, for synctest bubbles.
type transport func(*http.Request) error

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := f(r); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// payLater presses the button "pay later" and returns the status of the response.
func payLater(d *Demo) int {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(url.Values{"action": {"delay"}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer := httptest.NewRecorder()
	d.ServePage(answer, r, order("https://ai.example.com/webhook"))
	return answer.Code
}

// bubble returns a module and a channel with the delays of its notices.
func bubble(t *testing.T, delay time.Duration) (d *Demo, sent chan time.Duration) {
	d = &Demo{Secret: "hush", Delay: caddy.Duration(delay)}
	if err := paymentstest.Provision(t, d); err != nil {
		t.Fatal(err)
	}
	d.now = func() time.Time { return paymentstest.Now }
	sent = make(chan time.Duration, 2*maxWaiting)
	start := time.Now()
	d.client.Transport = transport(func(*http.Request) error {
		sent <- time.Since(start)
		return nil
	})
	return d, sent
}

func TestPayLaterSendsTheNoticeAfterTheDelay(t *testing.T) {
	t.Parallel()
	for delay, want := range map[time.Duration]time.Duration{0: 5 * time.Second, time.Minute: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			d, sent := bubble(t, delay)
			if got := payLater(d); got != http.StatusAccepted {
				t.Errorf("the status is %d", got)
			}
			if len(sent) > 0 {
				t.Error("the notice was sent without a delay")
			}
			if got := <-sent; got != want {
				t.Errorf("the notice was sent after %s, want %s", got, want)
			}
		})
	}
}

func TestWaitingNoticesEndWithTheConfiguration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, sent := bubble(t, time.Minute)
		payLater(d)
		if err := d.Cleanup(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // a remaining goroutine would fail the test
		time.Sleep(2 * time.Minute)
		if len(sent) > 0 {
			t.Error("the notice was sent after the configuration was unloaded")
		}
	})
}

func TestWaitingNoticesAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, sent := bubble(t, time.Minute)
		for range maxWaiting {
			if got := payLater(d); got != http.StatusAccepted {
				t.Fatalf("the status is %d", got)
			}
		}
		if got := payLater(d); got != http.StatusServiceUnavailable {
			t.Errorf("one more notice: the status is %d", got)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(sent) != maxWaiting {
			t.Errorf("%d notices were sent", len(sent))
		}
		if got := payLater(d); got != http.StatusAccepted {
			t.Errorf("after they were sent: the status is %d", got)
		}
	})
}

func TestAFailedDelayedNoticeIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, _ := bubble(t, time.Second)
		requests := 0
		d.client.Transport = transport(func(*http.Request) error {
			requests++
			return errors.New("no route")
		})
		payLater(d)
		time.Sleep(time.Hour)
		synctest.Wait()
		if requests != 1 || len(d.waiting) != 0 {
			t.Errorf("%d requests were sent, %d notices wait", requests, len(d.waiting))
		}
	})
}
