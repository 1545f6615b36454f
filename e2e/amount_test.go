package e2e

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"
)

// nano is an amount of money in nano-units. Its parsing and arithmetic do not
// use the gateway's code.
type nano int64

const unit nano = 1e9

// parseNano parses a decimal string such as 9.90.
func parseNano(text string) (nano, error) {
	exact, ok := new(big.Rat).SetString(text)
	if !ok || strings.ContainsAny(text, "eE/") {
		return 0, fmt.Errorf("%q is not an amount", text)
	}
	exact.Mul(exact, big.NewRat(int64(unit), 1))
	if !exact.IsInt() || !exact.Num().IsInt64() {
		return 0, fmt.Errorf("%q is not a whole number of nano-units", text)
	}
	return nano(exact.Num().Int64()), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *nano) UnmarshalJSON(text []byte) error {
	var word string
	if err := json.Unmarshal(text, &word); err != nil {
		return err
	}
	var err error
	*n, err = parseNano(word)
	return err
}

// String returns all nine decimal places.
func (n nano) String() string { return big.NewRat(int64(n), int64(unit)).FloatString(9) }

// tokens are the kinds of tokens with a price of their own.
type tokens struct {
	Input        int64 `json:"input"`
	Output       int64 `json:"output"`
	CacheRead    int64 `json:"cache_read"`
	CacheWrite5m int64 `json:"cache_write_5m"`
	CacheWrite1h int64 `json:"cache_write_1h"`
	Reasoning    int64 `json:"reasoning"`
}

// all returns the sum of all kinds.
func (t tokens) all() int64 {
	return t.Input + t.Output + t.CacheRead + t.CacheWrite5m + t.CacheWrite1h + t.Reasoning
}

func (t tokens) plus(u tokens) tokens {
	return tokens{
		t.Input + u.Input, t.Output + u.Output, t.CacheRead + u.CacheRead,
		t.CacheWrite5m + u.CacheWrite5m, t.CacheWrite1h + u.CacheWrite1h, t.Reasoning + u.Reasoning,
	}
}

// price is the price of a model in decimal strings: of a million tokens of each
// kind, and of one request.
type price struct {
	Input, Output, CacheRead, CacheWrite, CacheWrite1h, Reasoning, Request string
}

// Limits of the models of these tests.
const (
	contextTokens   = 200_000
	maxOutputTokens = 8192
)

// prices are the prices of the models. A token of m-2 costs less than a
// nano-unit, so that each call is rounded.
var prices = map[string]price{
	"m-1": {"3.00", "15.00", "0.30", "3.75", "6.00", "15.00", "0"},
	"m-2": {"0.000037", "0.00011", "0.0000041", "0.000053", "0.000071", "0.0003", "0.000001003"},
}

// onDisconnect is the setting of a model for calls whose clients disconnect, if
// it is not the default. m-1 has a price of reasoning, so its calls continue. So do calls without a
// stream, and streams of images.
var onDisconnect = map[string]string{
	"m-2": "on_disconnect cancel", "gpt-image-2": "on_disconnect cancel", "tts-2": "on_disconnect cancel", "whisper-2": "on_disconnect cancel",
}

// lines returns the price as lines of a Caddyfile.
func (p price) lines(model string) string {
	return fmt.Sprintf(`
		price %s {
			input          %s
			output         %s
			cache_read     %s
			cache_write    %s
			cache_write_1h %s
			reasoning      %s
			request        %s
			context        %d
			max_output     %d
			%s
		}
`, model, p.Input, p.Output, p.CacheRead, p.CacheWrite, p.CacheWrite1h, p.Reasoning, p.Request, contextTokens, maxOutputTokens, onDisconnect[model])
}

// of returns the price of tokens and their request: the exact sum, rounded up.
func (p price) of(t tokens) nano {
	million := big.NewInt(1_000_000)
	sum := new(big.Int)
	for _, item := range []struct {
		count int64
		rate  string
	}{
		{t.Input, p.Input}, {t.Output, p.Output}, {t.CacheRead, p.CacheRead},
		{t.CacheWrite5m, p.CacheWrite}, {t.CacheWrite1h, p.CacheWrite1h}, {t.Reasoning, p.Reasoning},
	} {
		sum.Add(sum, new(big.Int).Mul(big.NewInt(item.count), big.NewInt(int64(must(parseNano(item.rate))))))
	}
	sum, rest := sum.QuoRem(sum, million, new(big.Int))
	if rest.Sign() > 0 {
		sum.Add(sum, big.NewInt(1))
	}
	return nano(sum.Int64()) + must(parseNano(p.Request))
}

// must panics on an error in data that the tests themselves have written.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func TestPriceArithmetic(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]nano{"9.90": 9_900_000_000, "-0.000000001": -1, "0.00": 0, "100": 100 * unit} {
		if got, err := parseNano(text); got != want || err != nil {
			t.Errorf("%s is %d (%v), want %d", text, int64(got), err, int64(want))
		}
	}
	for _, text := range []string{"", "x", "1e3", "1/2", "0.0000000001", "99999999999999999999"} {
		if got, err := parseNano(text); err == nil {
			t.Errorf("%q is parsed as %v", text, got)
		}
	}
	// 1,000 × 3 and 100 × 15 millionths.
	if got := prices["m-1"].of(tokens{Input: 1000, Output: 100}); got != 4_500_000 {
		t.Errorf("m-1: %v", got)
	}
	// 3 × 0.037 and 1 × 0.11 nano-units are less than one, which is rounded up;
	// the request is 1,003.
	if got := prices["m-2"].of(tokens{Input: 3, Output: 1}); got != 1004 {
		t.Errorf("m-2: %v", got)
	}
}
