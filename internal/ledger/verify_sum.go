package ledger

import "github.com/caddy-modelgate/modelgate/money"

// sum adds up amounts without an end to its range, so that those that should come
// to nothing do not do so by going around it.
type sum struct{ high, low int64 } // of which high counts by lowUnit

const lowUnit = 1 << 32

func (s *sum) add(a money.Amount) {
	s.high += int64(a) >> 32
	s.low += int64(a) & (lowUnit - 1)
}

// take is add of the amount's opposite, which need not be in the range of amounts.
func (s *sum) take(a money.Amount) {
	s.high -= int64(a) >> 32
	s.low -= int64(a) & (lowUnit - 1)
}

func (s *sum) zero() bool { return s.low%lowUnit == 0 && s.high == -s.low/lowUnit }

// String writes the sum, as far as an amount can be so much.
func (s *sum) String() string {
	high := s.high + s.low/lowUnit
	if high != int64(int32(high)) {
		return "more than an amount can be"
	}
	return money.Amount(high<<32 + s.low%lowUnit).String()
}
