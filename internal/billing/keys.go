package billing

import (
	"encoding/binary"
	"fmt"

	"github.com/caddy-modelgate/modelgate/storage"
)

// Keys of the store. Integers are eight bytes, big-endian, so that they lie in
// their order; ^ marks those that are counted down from the greatest, so that
// the latest come first. Times are Unix seconds.
//
//	meta/subscriptions              number of the last subscription
//	sub/<user>/<id>                 subscriptions
//	subsummary/<user>                   those that are running, and what else all of them come to
//	sale/<user>/<id>/<^from>        what was sold of one that was renewed, latest first
//	quota/<user>/<id>/<start>       periods of quota that were opened later, or added to
//	claimed/<user>/<plan>           as which subscription a free plan was claimed
//	billing/<user>                  preference, and what else there is one of
//	subdue/<time>/<user>            when time will change a user's subscriptions
//
//	order/<trade_no>                orders
//	userorder/<user>/<^number>/<no> those of a user, latest first
//	orderopen/<user>/<no>           those that are pending
//	orderbegun/<user>/<^time>/<no>  those of the last day that were not paid
//	orderdue/<expiry>/<no>          those that are pending, by expiry
//	orderkey/<user>/<hash of key>   idempotency keys of orders
//	payref/<provider>/<payment>     which order a payment has paid
//	payevent/<provider>/<kind>/<event>  notices that were applied
//	paywait/<hash>/<time, ms>/<digest>  notices of a payment that is not known yet
//	mismatch/<^time, ms>/<digest>   notices that could not be applied
//	mismatchof/<digest>             where those are
const (
	subscriptionPrefix = "sub"
	summaryPrefix      = "subsummary"
	salePrefix         = "sale"
	periodPrefix       = "quota"
	claimedPrefix      = "claimed"
	accountPrefix      = "billing"
	duePrefix          = "subdue"

	orderPrefix      = "order"
	userOrderPrefix  = "userorder"
	openPrefix       = "orderopen"
	begunPrefix      = "orderbegun"
	orderDuePrefix   = "orderdue"
	orderKeyPrefix   = "orderkey"
	paymentPrefix    = "payref"
	eventPrefix      = "payevent"
	waitingPrefix    = "paywait"
	mismatchPrefix   = "mismatch"
	mismatchOfPrefix = "mismatchof"
)

var counterKey = []byte("meta/subscriptions")

// integer is the field of a key that begins at a byte.
func integer(key []byte, at int) int64 { return int64(binary.BigEndian.Uint64(key[at:])) }

// scan decodes the records between two keys, until fn returns false.
func scan[T any](r storage.Reader, lo, hi []byte, fn func(key []byte, record T) bool) error {
	var bad error
	err := r.Scan(lo, hi, func(key, val []byte) bool {
		var record T
		if err := storage.DecodeRecord(val, &record); err != nil {
			bad = fmt.Errorf("%q: %w: %w", key, storage.ErrUnreadable, err)
			return false
		}
		return fn(key, record)
	})
	if err == nil {
		err = bad
	}
	return err
}

// keysBetween returns copies of at most limit keys; all, when limit is zero.
func keysBetween(r storage.Reader, lo, hi []byte, limit int) (keys [][]byte, err error) {
	err = r.Scan(lo, hi, func(key, _ []byte) bool {
		keys = append(keys, append([]byte(nil), key...))
		return len(keys) != limit
	})
	return keys, err
}
