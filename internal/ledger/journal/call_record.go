package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// callLayout is the first byte of a call's record. Each call writes one, and the engine writes
// every byte three times: to the log, to a table, and to the table that this is merged into. So
// the record is binary: it takes 130 bytes and 1.9 µs to write and read, as JSON 390 bytes and
// 17 µs.
//
// The layout is followed by the numbers as varints, in the order of [CallRecord.numbers], the
// texts, each with its length, the payments, and the checksum of key and record. The key contains
// the user, the time and the id.
const callLayout = 1

// mediaLayout is the layout of a call with tokens of audio or images, which few calls have. It has
// the numbers of these too.
const mediaLayout = 2

// The words of a call's end. Records contain indexes of these tables, so an index is never used
// again for another word.
var (
	endedWords = []usage.Ended{"", usage.Complete, usage.ClientGone, usage.Timeout, usage.UpstreamError, usage.MoneyOut, usage.Refused, Crashed}
	basisWords = []usage.Basis{"", usage.None, usage.Reported, usage.Estimated}
	ruleWords  = []usage.Rule{"", usage.Finish, usage.Cancel, usage.FinishTimeout, usage.FinishLimit, usage.FinishShutdown, usage.FailedInput, usage.Unsent}
)

const (
	firstKind   = 10
	callNumbers = firstKind + usage.Kinds

	// textNumbers is how many numbers a record of callLayout has.
	textNumbers = firstKind + usage.KindReasoning + 1
)

// numbers returns the numbers of the record. The last ones are zero more often.
func (c *CallRecord) numbers() (n [callNumbers]int64) {
	n = [callNumbers]int64{
		place(endedWords, c.Ended), place(basisWords, c.Usage), place(ruleWords, c.Rule) << 1, int64(c.Status),
		int64(c.Number), int64(c.Cost), int64(c.Uncollected), c.FirstByte, c.Duration, int64(c.Answered),
	}
	if c.Stream {
		n[2] |= 1
	}
	tokens := c.Tokens.ByKind()
	copy(n[firstKind:], tokens[:])
	return n
}

// Encode returns the record for key, which is that of the call.
func (c *CallRecord) Encode(key []byte) []byte {
	b := make([]byte, 0, 160)
	numbers := c.numbers()
	written := numbers[:textNumbers]
	if slices.ContainsFunc(numbers[textNumbers:], func(n int64) bool { return n != 0 }) {
		b, written = append(b, mediaLayout), numbers[:]
	} else {
		b = append(b, callLayout)
	}
	for _, n := range written {
		b = binary.AppendVarint(b, n)
	}
	b = appendText(b, c.Key)
	b = appendText(b, c.Model)
	b = appendText(b, c.Route)
	b = appendText(b, c.Backend)
	b = appendText(b, c.Breakdown)
	b = binary.AppendUvarint(b, uint64(len(c.Paid)))
	for _, p := range c.Paid {
		b = append(b, p.Transfer[:]...)
		b = appendText(b, p.Account)
		b = binary.AppendVarint(b, int64(p.Amount))
	}
	return seal(key, b)
}

// DecodeCall decodes the record at a call's key.
func DecodeCall(key, record []byte) (c CallRecord, err error) {
	if err := c.takeKey(key); err != nil {
		return c, err
	}
	f, whole := unseal(key, record)
	if !whole {
		return c, errors.New("it is damaged, or belongs to another call")
	}
	if f.call(&c); f.bad || len(f.rest) > 0 {
		return c, errors.New("its layout is not known to this build")
	}
	return c, nil
}

// takeKey sets the fields of the call that its key contains.
func (c *CallRecord) takeKey(key []byte) error {
	const moment = len("/########/")
	rest, ok := bytes.CutPrefix(key, []byte(CallPrefix))
	user := bytes.IndexByte(rest, '/')
	if !ok || user < 0 || len(rest) < user+moment || rest[user+moment-1] != '/' {
		return fmt.Errorf("%q is not the key of a call", key)
	}
	c.User, c.ID = string(rest[:user]), string(rest[user+moment:])
	c.Time = math.MaxInt64 - int64(binary.BigEndian.Uint64(rest[user+1:]))
	return nil
}

func (f *fields) call(c *CallRecord) {
	var n [callNumbers]int64
	numbers := textNumbers
	switch f.byte() {
	case callLayout:
	case mediaLayout:
		numbers = callNumbers
	default:
		f.bad = true
	}
	for i := range numbers {
		n[i] = f.number()
	}
	c.Ended, c.Usage, c.Status = word(f, endedWords, n[0]), word(f, basisWords, n[1]), int(n[3])
	c.Stream, c.Rule = n[2]&1 != 0, word(f, ruleWords, n[2]>>1)
	c.Number, c.Cost, c.Uncollected, c.FirstByte, c.Duration, c.Answered = int(n[4]), money.Amount(n[5]), money.Amount(n[6]), n[7], n[8], int(n[9])
	c.Tokens = usage.OfKinds([usage.Kinds]int64(n[firstKind:]))
	c.Key, c.Model, c.Route, c.Backend, c.Breakdown = f.text(), f.text(), f.text(), f.text(), f.text()
	for range f.count() {
		var p Payment
		copy(p.Transfer[:], f.take(len(p.Transfer)))
		p.Account, p.Amount = f.text(), money.Amount(f.number())
		if f.bad {
			return
		}
		c.Paid = append(c.Paid, p)
	}
}

// ReadCall returns the record at a call's key.
func ReadCall(r storage.Reader, key []byte) (c CallRecord, found bool, err error) {
	record, err := r.Get(key)
	if err != nil || record == nil {
		return c, false, err
	}
	if c, err = DecodeCall(key, record); err != nil {
		return c, false, fmt.Errorf("%q: %w", key, err)
	}
	return c, true, nil
}
