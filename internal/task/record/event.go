package record

import (
	"fmt"
)

// CallbackState is the state of a callback.
type CallbackState string

// The states of a callback.
const (
	Undelivered CallbackState = "undelivered" // it will be sent, again or for the first time
	Delivered   CallbackState = "delivered"   // the receiver has acknowledged it
	Dead        CallbackState = "dead"        // it is not sent again
)

// Event is the callback of a task, at event/<task>. Its content is in the record
// of the task, which no longer changes. Times are Unix milliseconds.
type Event struct {
	Task    string        `json:"task"`
	Key     string        `json:"key"`
	User    string        `json:"user"`
	Created int64         `json:"created"`
	State   CallbackState `json:"state"`

	Attempts int    `json:"attempts,omitempty"` // of this round
	Sent     int    `json:"sent,omitempty"`     // attempts in total
	Due      int64  `json:"due,omitempty"`      // of the next attempt
	Fence    int64  `json:"fence,omitempty"`    // of the last claim
	Owner    string `json:"owner,omitempty"`    // engine of the last claim

	Last    int64  `json:"last,omitempty"`    // time of the last attempt
	Status  int    `json:"status,omitempty"`  // HTTP status of the answer; zero: no answer
	Trouble string `json:"trouble,omitempty"` // why it was not delivered
	URL     string `json:"url,omitempty"`     // address of the last attempt
	Ended   int64  `json:"ended,omitempty"`
}

// wrong returns the inconsistencies of a callback.
func (v *Event) wrong() []string {
	switch {
	case v.State == Undelivered && v.Due == 0:
		return []string{"it is not delivered, and no attempt is due"}
	case v.State != Undelivered && (v.State != Delivered && v.State != Dead || v.Due != 0 || v.Ended == 0):
		return []string{fmt.Sprintf("its state is %q since %d, and an attempt is due at %d", v.State, v.Ended, v.Due)}
	}
	return nil
}
