package caddymodule

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
)

// Tolerance returns the part of a user's spend that may stay uncollected before the
// user's calls are restricted.
func (a *App) Tolerance() ledger.Tolerance { return a.tolerance }

// parseTolerance reads a percentage with up to four decimal places, such as 1% or
// 0.5%, or off.
func parseTolerance(word string) (ledger.Tolerance, error) {
	if word == "off" {
		return 0, nil
	}
	bad := fmt.Errorf("uncollected_tolerance: %q is not supported; allowed: off, or a percentage from 0.0001%% to 100%%, such as 0.5%%", word)
	number, ok := strings.CutSuffix(word, "%")
	whole, places, _ := strings.Cut(number, ".")
	if !ok || whole == "" || len(whole) > 3 || len(places) > 4 || strings.Trim(whole+places, "0123456789") != "" || strings.HasSuffix(number, ".") {
		return 0, bad
	}
	n, err := strconv.ParseInt(whole+(places + "0000")[:4], 10, 64)
	if err != nil || n == 0 || n > int64(ledger.MaxTolerance) {
		return 0, bad
	}
	return ledger.Tolerance(n), nil
}

func validateTolerance(word string) error {
	_, err := parseTolerance(word)
	return err
}
