package record

import (
	"fmt"
)

// CallbackState is where a callback stands.
type CallbackState string

// The states of a callback.
const (
	Undelivered CallbackState = "undelivered" // it is going to be sent, again or for the first time
	Delivered   CallbackState = "delivered"   // the receiver has acknowledged it
	Dead        CallbackState = "dead"        // it is given up
)

// Event is the callback of a task, at event/<task>. What it says is in the
// record of the task, which does not change any more. Times are Unix
// milliseconds.
type Event struct {
	Task    string        `json:"task"`
	Key     string        `json:"key"`
	User    string        `json:"user"`
	Created int64         `json:"created"`
	State   CallbackState `json:"state"`

	Attempts int    `json:"attempts,omitempty"` // of this round
	Sent     int    `json:"sent,omitempty"`     // in all
	Due      int64  `json:"due,omitempty"`      // of the next attempt
	Fence    int64  `json:"fence,omitempty"`    // of the last claim
	Owner    string `json:"owner,omitempty"`    // which engine has it

	Last    int64  `json:"last,omitempty"`    // time of the last attempt
	Status  int    `json:"status,omitempty"`  // what it was answered; zero: nothing
	Trouble string `json:"trouble,omitempty"` // why it was not delivered
	URL     string `json:"url,omitempty"`     // where it went
	Ended   int64  `json:"ended,omitempty"`
}

// wrong returns what in a callback contradicts itself.
func (v *Event) wrong() []string {
	switch {
	case v.State == Undelivered && v.Due == 0:
		return []string{"it is not delivered, and nobody will send it"}
	case v.State != Undelivered && (v.State != Delivered && v.State != Dead || v.Due != 0 || v.Ended == 0):
		return []string{fmt.Sprintf("it is %q since %d, and is sent at %d", v.State, v.Ended, v.Due)}
	}
	return nil
}
