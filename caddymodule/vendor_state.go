package caddymodule

import (
	"fmt"
)

// The values of state.
const (
	stateOff    = "off"
	stateShared = "shared"
)

// SharesState reports whether calls may name files, containers, earlier answers and other
// objects of the operator's account at the vendor.
func (a *App) SharesState() bool { return a.State == stateShared }

func validateState(word string) error {
	if word != stateOff && word != stateShared {
		return fmt.Errorf("state: %q is not supported; allowed: off, shared", word)
	}
	return nil
}
