package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/payments"
)

const (
	deliveryTimeout = 10 * time.Second
	maxWaiting      = 64 // notices that may wait at the same time
)

// errFull is the error of deliverLater if too many notices wait.
var errFull = errors.New("too many notices wait; try again in a moment")

// deliver sends a notice about an order to its webhook, as a service on another machine would. It
// continues after the request of the page has ended, because a payer who closes the page has paid.
func (d *Demo) deliver(kind payments.Kind, o payments.Order) error {
	id, body, err := write(kind, o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(d.ctx, deliveryTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.NotifyURL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	d.sign(request.Header, id, d.now(), body)
	response, err := d.client.Do(request)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the webhook returned %d", response.StatusCode)
	}
	return nil
}

// deliverLater sends the notice after the delay, unless the configuration is unloaded before. It does
// not block.
func (d *Demo) deliverLater(kind payments.Kind, o payments.Order) error {
	select {
	case d.waiting <- struct{}{}:
	default:
		return errFull
	}
	go func() {
		defer func() { <-d.waiting }()
		timer := time.NewTimer(time.Duration(d.Delay))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-d.ctx.Done():
			return
		}
		if err := d.deliver(kind, o); err != nil {
			d.logger.Error("a delayed notice of the demo payment service was not delivered",
				zap.String("trade_no", o.TradeNo), zap.Error(err))
		}
	}()
	return nil
}
