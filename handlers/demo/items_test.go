package demo

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// storing returns a function that sends a request to a Demo that stores responses, checks the status, and
// decodes the answer.
func storing(t *testing.T, pace time.Duration) func(method, path, body string, status int) map[string]any {
	t.Helper()
	d := &Demo{Pace: new(caddy.Duration(pace))}
	if err := d.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	return func(method, path, body string, status int) map[string]any {
		t.Helper()
		got := serve(d, httptest.NewRequest(method, path, strings.NewReader(body)))
		if got.Code != status {
			t.Fatalf("%s %s %s: %d %s", method, path, body, got.Code, got.Body)
		}
		return parse[map[string]any](t, got.Body.Bytes())
	}
}

// everyKind has an item of each kind, and wantKinds the same items as they are returned: without ids, which
// are checked on their own.
const (
	everyKind = `[
		{"role":"user","content":"hi"},
		{"type":"message","role":"user","content":[{"type":"input_text","text":"see"},{"type":"input_image","image_url":"u"}]},
		{"role":"assistant","content":"hello"},
		{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"},
		{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},
		{"type":"function_call_output","call_id":"c1","output":"42"},
		{"type":"computer_call_output","call_id":"c2","output":{"type":"computer_screenshot","image_url":"u"}}]`
	wantKinds = `[
		{"type":"message","role":"user","status":"completed","content":[{"type":"input_text","text":"hi"}]},
		{"type":"message","role":"user","status":"completed","content":[{"type":"input_text","text":"see"},{"type":"input_image","image_url":"u"}]},
		{"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"hello"}]},
		{"type":"reasoning","summary":[],"encrypted_content":"x"},
		{"type":"function_call","call_id":"c1","name":"f","arguments":"{}","status":"completed"},
		{"type":"function_call_output","call_id":"c1","output":"42","status":"completed"},
		{"type":"computer_call_output","call_id":"c2","output":{"type":"computer_screenshot","image_url":"u"},"status":"completed"}]`
)

// wantItems compares a list of items with wantKinds, and its ends with its members.
func wantItems(t *testing.T, list map[string]any) {
	t.Helper()
	data := list["data"].([]any)
	prefixes := []string{"msg_", "msg_", "msg_", "rs_1", "fc_", "fco_", "cuo_"}
	for i, v := range data {
		id := v.(map[string]any)["id"]
		if i == 0 && list["first_id"] != id || i == len(data)-1 && list["last_id"] != id || !strings.HasPrefix(id.(string), prefixes[i]) {
			t.Errorf("item %d has the id %v in %v", i, id, list)
		}
		delete(v.(map[string]any), "id")
	}
	if want := parse[[]any](t, []byte(wantKinds)); !reflect.DeepEqual(data, want) {
		t.Errorf("the items are\n%v\nwant\n%v", data, want)
	}
}

func TestItemsAreReturnedAsTheyWereSent(t *testing.T) {
	t.Parallel()
	send := storing(t, 0)
	id := send("POST", responsesPath, `{"model":"m","input":`+everyKind+`}`, 200)["id"].(string)
	wantItems(t, send("GET", responsesPath+"/"+id+"/input_items?order=asc", "", 200))

	c := send("POST", "/v1/conversations", `{"items":`+everyKind+`}`, 200)["id"].(string)
	wantItems(t, send("GET", "/v1/conversations/"+c+"/items?order=asc", "", 200))
	wantItems(t, send("POST", "/v1/conversations/"+send("POST", "/v1/conversations", "", 200)["id"].(string)+"/items", `{"items":`+everyKind+`}`, 200))

	// A turn of the conversation adds its input and its output.
	answer := send("POST", responsesPath, `{"model":"m","conversation":"`+c+`","input":"more","tools":[{"type":"function","name":"f"}]}`, 200)
	call := answer["output"].([]any)[0]
	items := send("GET", "/v1/conversations/"+c+"/items?limit=2", "", 200)["data"].([]any)
	if !reflect.DeepEqual(items[0], call) || items[1].(map[string]any)["role"] != "user" {
		t.Errorf("the newest items are %v, want %v first", items, call)
	}
	send("POST", "/v1/conversations", `{"items":[null]}`, 400)
}

// TestListsOfItemsHavePages reads five items in pages of two, in both orders.
func TestListsOfItemsHavePages(t *testing.T) {
	t.Parallel()
	send := storing(t, 0)
	id := send("POST", responsesPath, `{"model":"m","input":[{"role":"user","content":"1"},{"role":"user","content":"2"},{"role":"user","content":"3"},{"role":"user","content":"4"},{"role":"user","content":"5"}]}`, 200)["id"].(string)
	for order, want := range map[string]string{"": "5 4, 3 2, 1", "&order=desc": "5 4, 3 2, 1", "&order=asc": "1 2, 3 4, 5"} {
		var pages []string
		after := ""
		for more := true; more && len(pages) < 9; {
			list := send("GET", responsesPath+"/"+id+"/input_items?limit=2"+order+after, "", 200)
			page := ""
			for _, item := range list["data"].([]any) {
				page += fmt.Sprint(item.(map[string]any)["content"].([]any)[0].(map[string]any)["text"], " ")
			}
			pages = append(pages, strings.TrimSpace(page))
			after, more = "&after="+list["last_id"].(string), list["has_more"].(bool)
		}
		if got := strings.Join(pages, ", "); got != want {
			t.Errorf("%q: %s", order, got)
		}
	}
	for _, query := range []string{"limit=0", "limit=101", "limit=x", "order=up", "after=msg_none"} {
		send("GET", responsesPath+"/"+id+"/input_items?"+query, "", 400)
	}
}

func TestAConversationForgetsADeletedItem(t *testing.T) {
	t.Parallel()
	send := storing(t, 0)
	c := send("POST", "/v1/conversations", `{"items":[{"id":"msg_1","role":"user","content":"one"},{"id":"msg_2","role":"user","content":"two"}]}`, 200)["id"].(string)
	input := func() any {
		answer := send("POST", responsesPath, `{"model":"m","store":false,"conversation":"`+c+`","input":[{"type":"reasoning","summary":[]}]}`, 200)
		return textOf(answer)
	}
	if got := input(); got != "You said: two" {
		t.Error(got)
	}
	send("DELETE", "/v1/conversations/"+c+"/items/msg_2", "", 200)
	if got := input(); got != "You said: one" {
		t.Error(got)
	}
}

// TestAnItemThatIsSentAgainDoesNotReplaceTheFirst sends another item with the id of a stored one.
func TestAnItemThatIsSentAgainDoesNotReplaceTheFirst(t *testing.T) {
	t.Parallel()
	send := storing(t, 0)
	send("POST", responsesPath, `{"model":"m","input":[{"id":"msg_1","role":"user","content":"one"}]}`, 200)
	send("POST", responsesPath, `{"model":"m","input":[{"id":"msg_1","type":"reasoning","summary":[]},{"role":"user","content":"two"}]}`, 200)
	if got := textOf(send("POST", responsesPath, `{"model":"m","input":[{"type":"item_reference","id":"msg_1"}]}`, 200)); got != "You said: one" {
		t.Error(got)
	}
}

// TestAResponseRepeatsItsRequest checks the members of the request that the response has, too.
func TestAResponseRepeatsItsRequest(t *testing.T) {
	t.Parallel()
	send := storing(t, 0)
	earlier := send("POST", responsesPath, `{"model":"m","input":"hi"}`, 200)
	id := earlier["id"].(string)
	const settings = `"metadata":{"a":"b"},"tools":[{"type":"function","name":"f","strict":true,"parameters":{}}],"tool_choice":"none","top_p":0.5,
		"temperature":0.25,"parallel_tool_calls":false,"reasoning":{"effort":"low"},"instructions":"Be brief.","max_output_tokens":99,
		"store":true,"text":{"format":{"type":"text"},"verbosity":"low"},"truncation":"auto","user":"u"`
	sent := `{"model":"m","input":"hi","previous_response_id":"` + id + `",` + settings + `}`
	got := send("POST", responsesPath, sent, 200)
	for name, want := range parse[map[string]any](t, []byte(sent)) {
		if name != "input" && !reflect.DeepEqual(got[name], want) {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if stored := send("GET", responsesPath+"/"+got["id"].(string), "", 200); !reflect.DeepEqual(stored, got) {
		t.Errorf("later it is %v, want %v", stored, got)
	}
	want := parse[map[string]any](t, []byte(`{"metadata":{},"tools":[],"tool_choice":"auto","top_p":1,"temperature":1,"parallel_tool_calls":true,
		"instructions":null,"max_output_tokens":null,"previous_response_id":null,"truncation":"disabled"}`))
	for name, value := range want {
		if has, ok := earlier[name]; !ok || !reflect.DeepEqual(has, value) {
			t.Errorf("without a value %s is %v, want %v", name, has, value)
		}
	}
}

func TestOnlyBackgroundResponsesAreCancelled(t *testing.T) {
	t.Parallel()
	send := storing(t, time.Hour)
	id := send("POST", responsesPath, `{"model":"m","input":"hi"}`, 200)["id"].(string)
	refused := send("POST", responsesPath+"/"+id+"/cancel", "", http.StatusBadRequest)
	if message := refused["error"].(map[string]any)["message"]; message != "Cannot cancel a synchronous response." {
		t.Error(message)
	}
	id = send("POST", responsesPath, `{"model":"m","input":"hi","background":true}`, 200)["id"].(string)
	if got := send("POST", responsesPath+"/"+id+"/cancel", "", 200); got["status"] != "cancelled" {
		t.Error(got)
	}
}
