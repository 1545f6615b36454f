// Package ownership keeps which user owns which object at a vendor: responses, their items,
// conversations and containers. All users of a gateway share the operator's account there, and an id
// alone gives access to the object. So the gateway records each id before the caller receives it, and
// lets only its owner name it; see docs/reference/calls.md#vendor-state.
//
// [Objects] reads and writes the records. A response that runs in the background has a [Job] in its
// record until it is settled; jobs.go polls them. The package knows neither HTTP nor prices.
package ownership

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// Kind is a kind of object.
type Kind string

// The kinds of objects.
const (
	Response     Kind = "response"
	Item         Kind = "item"
	Conversation Kind = "conversation"
	Container    Kind = "container"
)

// Object is the record of an object at a vendor.
type Object struct {
	ID      string `json:"id"` // of the vendor
	Kind    Kind   `json:"kind"`
	User    string `json:"user"`
	Key     string `json:"key"`               // by which it was made
	Model   string `json:"model,omitempty"`   // of the call that made it; it selects the route
	Backend string `json:"backend,omitempty"` // upstream that has it; empty: the route has no upstreams
	Until   int64  `json:"until"`             // Unix seconds
	Deleted bool   `json:"deleted,omitempty"` // its owner has deleted it; the record stays until Job has ended
	Job     *Job   `json:"job,omitempty"`     // an unsettled background response
}

// Job is a background response that is not settled.
type Job struct {
	Call   journal.Call    `json:"call"` // the record of the call as it was submitted
	Payer  ledger.Payer    `json:"payer"`
	Amount money.Amount    `json:"amount"`          // reserved
	Facts  json.RawMessage `json:"facts"`           // from which its cost is calculated
	Epoch  int64           `json:"epoch,omitempty"` // of the node that polls it; zero: the store is not shared
	Read   Progress        `json:"read,omitzero"`   // what the user has read at other nodes
}

// objects is the table of objects. A record is found by the hash of its id, because an id is text of
// any length from outside.
var objects = table.Table[Object]{
	Name:    "vendorobject",
	Key:     func(o *Object) table.Key { return table.Key{hashOf(o.ID)} },
	Indexes: []*table.Index[Object]{jobIndex},
	Expires: func(o *Object) time.Time {
		if o.Job != nil {
			return time.Time{}
		}
		return time.Unix(o.Until, 0)
	},
	Check: func(o *Object) (problems []string) {
		if o.ID == "" || o.User == "" {
			problems = append(problems, "it has no id or no user")
		}
		if o.Job != nil && (o.Job.Call.User != o.User || o.Kind != Response) {
			problems = append(problems, "its job belongs to another user, or it is no response")
		}
		return problems
	},
}

// jobIndex has the objects with a job.
var jobIndex = &table.Index[Object]{
	Name: "vendorjob",
	Fields: func(o *Object) table.Key {
		if o.Job == nil {
			return nil
		}
		return table.Key{o.User}
	},
}

func hashOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// Verify compares the records with their index.
func Verify(r storage.Reader, problem func(format string, args ...any)) error {
	return objects.Verify(r, func(o *Object) string { return string(o.Kind) + " of " + o.User }, problem)
}

// Unsettled returns the record of a job that is given up: nothing is charged.
func Unsettled(c journal.Call, now time.Time) journal.Call {
	c.Ended, c.Usage, c.Rule, c.Tokens = usage.UpstreamError, usage.None, "", usage.Tokens{}
	c.Duration = now.UnixMilli() - c.Time
	return c
}
