package strictjson_test

import (
	"fmt"
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// The slots of a table are named by constants; zero is the body itself.
const (
	body = iota
	model
	stream
	options
	count
)

var table = strictjson.NewTable(
	strictjson.Rule{Name: "model", Kinds: strictjson.String, Required: true, Deciding: true, Slot: model},
	strictjson.Rule{Name: "stream", Kinds: strictjson.Bool, Deciding: true, Slot: stream},
	strictjson.Rule{Name: "stream_options", Kinds: strictjson.Object, Deciding: true, Slot: options},
	strictjson.Rule{Name: "messages", Kinds: strictjson.Array, Elem: strictjson.Object, Members: strictjson.NewTable(
		strictjson.Rule{Name: "role", Kinds: strictjson.String, Required: true},
	)},
)

// This example reads a body without decoding it, and adds a member without encoding it.
func ExampleTable_Scan() {
	call := []byte(`{"model":"gpt-5", "stream":true, "seed":0.10}`)

	var fields [count]strictjson.Value
	if f := table.Scan(call, fields[:]); f != nil {
		fmt.Println(f)
		return
	}
	fmt.Println(fields[model].Text(call))
	if fields[stream].Bool(call) && fields[options].Kind == 0 {
		at := fields[body].Start + 1
		call = slices.Insert(call, at, []byte(`"stream_options":{"include_usage":true},`)...)
	}
	fmt.Printf("%s\n", call)

	fmt.Println(table.Scan([]byte(`{"model":"gpt-5","messages":[{"role":1}]}`), fields[:]))
	// Output:
	// gpt-5
	// {"stream_options":{"include_usage":true},"model":"gpt-5", "stream":true, "seed":0.10}
	// INVALID_PARAMETER (messages[0].role): `messages[0].role` must be a string, not a number
}

func ExampleDecode() {
	var purchase struct {
		PlanID int64  `json:"plan_id"`
		Key    string `json:"idempotency_key"`
	}
	f := strictjson.Decode([]byte(`{"plan_id":"3"}`), &purchase)
	fmt.Println(f)
	// Output:
	// INVALID_PARAMETER (plan_id): `plan_id` must be an integer, not a string
}
