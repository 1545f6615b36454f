package ledger

import (
	"cmp"
	"context"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// fundedFor is how long CheckFunds assumes that a user who could reserve still can. So most calls need
// no read of the shared store. If the assumption is wrong, Reserve refuses the call.
const fundedFor = 5 * time.Second

// noteFunded records for CheckFunds whether a user could reserve.
func (l *Ledger) noteFunded(user string, funded bool) {
	p := l.balanceCache.of(user)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used = l.store.Now(); funded {
		p.funded = p.used
	} else {
		p.funded = time.Time{}
	}
}

// checkFunds is [Ledger.CheckFunds] on a shared store.
func (l *Ledger) checkFunds(ctx context.Context, payer Payer) error {
	if err := cmp.Or(l.store.Err(), l.settler.failing()); err != nil {
		return fault.OfStore(err)
	}
	if p := l.balanceCache.find(payer.User); p != nil {
		p.mu.Lock()
		since := l.store.Now().Sub(p.funded)
		p.mu.Unlock()
		if since >= 0 && since < fundedFor {
			return nil
		}
	}
	err := l.store.View(ctx, func(r storage.Reader) error {
		own := &Reservation{ledger: l}
		p, err := l.readBalances(storage.NewBuffer(r), payer, own)
		if err != nil {
			return err
		}
		if shortfall := p.shortfall(0, own.caps); shortfall != nil {
			return shortfall
		}
		return nil
	})
	l.noteFunded(payer.User, err == nil)
	return refusalOrFault(err)
}
