package catalog

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// Seconds is the length of a video in microseconds, so that parts of a second are priced without
// floating point. In JSON it is a number of seconds: 8 or 5.5.
type Seconds int64

const (
	// Second is one second.
	Second Seconds = 1_000_000

	// MaxSeconds is the longest video that a caller can request: a day.
	MaxSeconds = 24 * 60 * 60 * Second
)

// errSeconds describes a valid length. Its text follows the name of a parameter.
var errSeconds = fault.New(fault.InvalidParameter, "must be a number of seconds greater than 0 and up to 86400, with at most six decimal places")

// ParseSeconds parses a JSON number of seconds, at most [MaxSeconds], without rounding.
func ParseSeconds(text string) (Seconds, *fault.Fault) {
	// The limits are checked before the exact conversion, which could take very long for
	// a large exponent.
	about, err := strconv.ParseFloat(text, 64)
	if err != nil || len(text) > 32 || about < 1e-6 || about > 86400 {
		return 0, errSeconds
	}
	exact, ok := new(big.Rat).SetString(text)
	if !ok {
		return 0, errSeconds
	}
	exact.Mul(exact, big.NewRat(int64(Second), 1))
	if !exact.IsInt() || exact.Num().Cmp(big.NewInt(int64(MaxSeconds))) > 0 {
		return 0, errSeconds
	}
	return Seconds(exact.Num().Int64()), nil
}

// String returns the number of seconds with the necessary decimal places.
func (s Seconds) String() string {
	if s < 0 {
		return "-" + (-s).String()
	}
	whole, part := s/Second, s%Second
	if part == 0 {
		return strconv.FormatInt(int64(whole), 10)
	}
	return strings.TrimRight(fmt.Sprintf("%d.%06d", whole, part), "0")
}

// Whole returns the number of seconds, or false if s is not a whole number.
func (s Seconds) Whole() (int, bool) { return int(s / Second), s%Second == 0 }

// MarshalJSON encodes s as a number of seconds.
func (s Seconds) MarshalJSON() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalJSON decodes a number of seconds.
func (s *Seconds) UnmarshalJSON(text []byte) error {
	n, refused := ParseSeconds(string(text))
	if refused != nil {
		return refused
	}
	*s = n
	return nil
}
