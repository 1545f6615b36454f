package call_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-modelgate/modelgate/handlers/demo"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// vendor is a service that stores responses for one account.
type vendor struct {
	*httptest.Server

	mu   sync.Mutex
	seen []string // method and path of each request
	down bool     // it answers 500
}

func newVendor(t *testing.T, pace time.Duration) *vendor {
	t.Helper()
	v, d := new(vendor), &demo.Demo{Pace: new(caddy.Duration(pace))}
	if err := d.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	none := caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusTeapot)
		return nil
	})
	v.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.mu.Lock()
		v.seen = append(v.seen, r.Method+" "+r.RequestURI)
		down := v.down
		v.mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		switch {
		case down:
			w.WriteHeader(http.StatusInternalServerError)
		case bytes.Contains(body, []byte(`"input":"a container"`)):
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"id":"resp_%[1]d","object":"response","status":"completed","output":[{"id":"ci_%[1]d","type":"code_interpreter_call",`+
				`"container_id":"cntr_%[1]d","code":"1","outputs":[]}],"usage":{"input_tokens":3,"output_tokens":1,"total_tokens":4}}`, v.requests())
		default:
			_ = d.ServeHTTP(w, r, none)
		}
	}))
	t.Cleanup(v.Close)
	return v
}

// requests returns how many requests the vendor has received.
func (v *vendor) requests() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.seen)
}

func (v *vendor) set(change func(*vendor)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change(v)
}

// ownConfig is a gateway with `state own` in front of upstreams.
func ownConfig(upstreams ...string) gatetest.Config {
	for i := range upstreams {
		upstreams[i] = strings.TrimPrefix(upstreams[i], "http://")
	}
	return gatetest.Config{App: responsePrices, Site: "modelgate_openai {\nstate own\nreverse_proxy " + strings.Join(upstreams, " ") + "\n}"}
}

// made has the ids of the objects of one user.
type made struct{ response, item, conversation, conversationItem, container string }

// memberAt returns the member of a JSON answer at a path of names and indexes.
func memberAt(t *testing.T, body string, path ...any) string {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(body), &value); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	for _, step := range path {
		switch step := step.(type) {
		case string:
			value = value.(map[string]any)[step]
		case int:
			value = value.([]any)[step]
		}
	}
	text, _ := value.(string)
	return text
}

func makeObjects(t *testing.T, g *gatetest.Gate, key gatetest.Key) (m made) {
	t.Helper()
	one := respond(t, g, responses, key.Secret, `{"model":"priced","input":"one two three"}`)
	m.response, m.item = memberAt(t, one.Body, "id"), memberAt(t, one.Body, "output", 0, "id")
	two := respond(t, g, "/v1/conversations", key.Secret, `{"items":[{"type":"message","role":"user","content":"hello"}]}`)
	m.conversation = memberAt(t, two.Body, "id")
	items := g.Do(t, http.MethodGet, "/v1/conversations/"+m.conversation+"/items", headersFor(responses, key.Secret), "")
	m.conversationItem = memberAt(t, items.Body, "data", 0, "id")
	m.container = memberAt(t, respond(t, g, responses, key.Secret, `{"model":"priced","input":"a container"}`).Body, "output", 0, "container_id")
	if m.container == "" || m.response == "" || m.item == "" || m.conversation == "" || m.conversationItem == "" {
		t.Fatalf("not all objects were made: %+v\n%s\n%s\n%s", m, one.Body, two.Body, items.Body)
	}
	return m
}

// places are the places of ids. RESP, ITEM, CONV, CITEM and CNTR stand for ids; OWN for ids of the caller.
var places = []struct{ method, path, body string }{
	{"GET", "/v1/responses/RESP", ""},
	{"GET", "/v1/responses/RESP?stream=true&starting_after=2", ""},
	{"DELETE", "/v1/responses/RESP", ""},
	{"POST", "/v1/responses/RESP/cancel", ""},
	{"GET", "/v1/responses/RESP/input_items", ""},
	{"GET", "/v1/responses/OWNRESP/input_items?after=ITEM", ""},
	{"GET", "/v1/responses/OWNRESP/input_items?before=ITEM", ""},
	{"GET", "/v1/responses/OWNRESP/input_items?after=OWNITEM&after=ITEM", ""},
	{"GET", "/v1/conversations/CONV", ""},
	{"POST", "/v1/conversations/CONV", `{"metadata":{"a":"b"}}`},
	{"DELETE", "/v1/conversations/CONV", ""},
	{"GET", "/v1/conversations/CONV/items", ""},
	{"POST", "/v1/conversations/CONV/items", `{"items":[{"role":"user","content":"x"}]}`},
	{"GET", "/v1/conversations/OWNCONV/items?after=CITEM", ""},
	{"POST", "/v1/conversations/OWNCONV/items", `{"items":[{"type":"item_reference","id":"ITEM"}]}`},
	{"POST", "/v1/conversations", `{"items":[{"type":"item_reference","id":"ITEM"}]}`},
	{"GET", "/v1/conversations/CONV/items/CITEM", ""},
	{"GET", "/v1/conversations/OWNCONV/items/CITEM", ""},
	{"DELETE", "/v1/conversations/OWNCONV/items/CITEM", ""},
	{"POST", "/v1/responses", `{"model":"priced","input":"x","previous_response_id":"RESP"}`},
	{"POST", "/v1/responses", `{"model":"priced","stream":true,"input":"x","previous_response_id":"RESP"}`},
	{"POST", "/v1/responses", `{"model":"priced","background":true,"input":"x","previous_response_id":"RESP"}`},
	{"POST", "/v1/responses", `{"model":"priced","input":"x","conversation":"CONV"}`},
	{"POST", "/v1/responses", `{"model":"priced","input":"x","conversation":{"id":"CONV"}}`},
	{"POST", "/v1/responses", `{"model":"priced","input":[{"type":"item_reference","id":"ITEM"}]}`},
	{"POST", "/v1/responses", `{"model":"priced","input":[{"role":"user","content":"x"},{"type":"item_reference","id":"OWNITEM"},{"type":"item_reference","id":"ITEM"}]}`},
	{"POST", "/v1/responses", `{"model":"priced","input":[{"type":"reasoning","id":"ITEM","summary":[]}]}`},
	{"POST", "/v1/responses", `{"model":"priced","input":"x","tools":[{"type":"function","name":"f","container":"CNTR"}]}`},
	{"POST", "/v1/responses", `{"model":"priced","input":[{"role":"user","content":"x"},{"type":"code_interpreter_call","id":"ITEM","code":"1","container_id":"CNTR"}]}`},
	{"POST", "/v1/responses", `{"model":"priced","input":[{"role":"user","content":"x"},{"type":"code_interpreter_call","id":"OWNITEM","code":"1","container_id":"CNTR"}]}`},
	{"POST", "/v1/responses/input_tokens", `{"model":"priced","input":"x","previous_response_id":"RESP"}`},
	{"POST", "/v1/responses/input_tokens", `{"model":"priced","input":"x","conversation":"CONV"}`},
	{"POST", "/v1/responses/compact", `{"model":"priced","input":"x","previous_response_id":"RESP"}`},
	{"POST", "/v1/responses/compact", `{"model":"priced","previous_response_id":"RESP"}`},
	{"POST", "/v1/responses/input_tokens", `{"model":"priced","previous_response_id":"RESP"}`},
	{"POST", "/v1/responses", `{"model":"priced","input":null,"previous_response_id":"RESP"}`},
	{"POST", "/v1/responses/compact", `{"model":"priced","input":[{"type":"item_reference","id":"ITEM"}]}`},
}

func TestForeignAndUnknownObjectsAreRefusedAlike(t *testing.T) {
	v := newVendor(t, 0)
	g := gatetest.Start(t, ownConfig(v.URL))
	alice, bob := g.NewKey(t, nil), g.NewKey(t, nil)
	g.Credit(t, alice.UserID, "100.00")
	g.Credit(t, bob.UserID, "100.00")
	hers, his := makeObjects(t, g, alice), makeObjects(t, g, bob)
	before := v.requests()
	fill := func(text string, m made) string {
		return strings.NewReplacer("OWNRESP", his.response, "OWNITEM", his.item, "OWNCONV", his.conversation,
			"RESP", m.response, "CITEM", m.conversationItem, "ITEM", m.item, "CONV", m.conversation, "CNTR", m.container).Replace(text)
	}
	unknown := made{"resp_unknown", "msg_unknown", "conv_unknown", "msg_unknown2", "cntr_unknown"}
	for _, place := range places {
		var answers []string
		for _, m := range []made{hers, unknown} {
			got := g.Do(t, place.method, fill(place.path, m), headersFor(responses, bob.Secret), fill(place.body, m))
			body := strings.NewReplacer(m.response, "X", m.conversationItem, "X", m.item, "X", m.conversation, "X", m.container, "X", got.RequestID(), "").Replace(string(got.Body))
			got.Header.Del("X-Request-Id")
			got.Header.Del("Date")
			got.Header.Del("Content-Length") // the ids differ in length
			answers = append(answers, fmt.Sprint(got.Status, body, got.Header))
		}
		if !strings.HasPrefix(answers[0], "404") || answers[0] != answers[1] {
			t.Errorf("%s %s %s:\n foreign %s\n unknown %s", place.method, place.path, place.body, answers[0], answers[1])
		}
	}
	if n := v.requests() - before; n != 0 {
		t.Errorf("the vendor has received %d requests: %v", n, v.seen[before:])
	}

	// In other spellings and places an id is refused, as without state own.
	for _, body := range []string{
		`{"model":"priced","input":"x","previousResponseId":"RESP"}`, `{"model":"priced","input":"x","Conversation":"CONV"}`,
		`{"model":"priced","input":"x","conversation":{"id":"OWNCONV","id":"CONV"}}`, `{"model":"priced","input":"x","conversation":{"id":"OWNCONV","ID":"CONV"}}`,
		`{"model":"priced","input":"x","conversation":["CONV"]}`, `{"model":"priced","input":[{"type":"item_reference","ID":"ITEM"}]}`,
		`{"model":"priced","input":[{"type":"item_reference","id":"OWNITEM","Id":"ITEM"}]}`, `{"model":"priced","input":[{"type":"item_reference","id":"ITEM","content":"x"}]}`,
		`{"model":"priced","input":[{"role":"user","content":[{"type":"item_reference","id":"ITEM"}]}]}`,
		`{"model":"priced","input":[{"role":"user","content":[{"type":"input_file","file_id":"file-1"}]}]}`,
		`{"model":"priced","input":"x","background":"true"}`, `{"model":"priced","input":"x","background":[]}`,
		`{"model":"priced","input":"x","background":true,"store":false}`, `{"model":"priced","input":"x","deferred":true}`,
		`{"model":"priced","input":"x","tools":[{"type":"file_search","vector_store_ids":["vs_1"]}]}`, `{"model":"priced","input":"x","prompt":{"id":"pmpt_1"}}`,
	} {
		if got := respond(t, g, responses, bob.Secret, fill(body, hers)); got.Status != http.StatusBadRequest {
			t.Errorf("%s is answered %d %s", body, got.Status, got.Body)
		}
	}
	for _, path := range []string{"/v1/responses/compact", "/v1/responses/input_tokens"} {
		if got := respond(t, g, path, bob.Secret, `{"model":"priced","input":"x","background":true}`); got.Status != http.StatusBadRequest {
			t.Errorf("%s with background is answered %d %s", path, got.Status, got.Body)
		}
	}
	if n := v.requests() - before; n != 0 {
		t.Errorf("the vendor has received %d requests: %v", n, v.seen[before:])
	}

	// The owner may do all that, with the deletions last.
	slices.SortStableFunc(places, func(a, b struct{ method, path, body string }) int {
		return strings.Count(a.method, "DELETE")*len(a.path) - strings.Count(b.method, "DELETE")*len(b.path)
	})
	for _, place := range places {
		if strings.Contains(place.body, "reasoning") || strings.HasPrefix(place.method, "DELETE") {
			continue
		}
		want := http.StatusOK
		if strings.HasSuffix(place.path, "/cancel") || strings.HasSuffix(place.path, "after=ITEM") {
			want = http.StatusBadRequest // from the vendor: the response is over, the item is in another list
		}
		if got := g.Do(t, place.method, fill(place.path, his), headersFor(responses, bob.Secret), fill(place.body, his)); got.Status != want {
			t.Errorf("the owner: %s %s %s is answered %d %s", place.method, place.path, place.body, got.Status, got.Body)
		}
	}
	for _, path := range []string{"/v1/conversations/OWNCONV/items/CITEM", "/v1/conversations/CONV", "/v1/responses/RESP"} {
		path = fill(path, his)
		if got := g.Do(t, "DELETE", path, headersFor(responses, bob.Secret), ""); got.Status != http.StatusOK {
			t.Errorf("DELETE %s is answered %d %s", path, got.Status, got.Body)
		}
		before := v.requests()
		if got := g.Do(t, "GET", path, headersFor(responses, bob.Secret), ""); got.Status != http.StatusNotFound || v.requests() != before {
			t.Errorf("after its deletion %s is answered %d %s", path, got.Status, got.Body)
		}
	}
	g.WalletAtRest(t, bob.UserID)
	g.Verify(t)
}

// TestAResponseThatIsNotChargedInFullCannotBeRead disconnects a stream whose vendor completes and stores the
// response all the same.
func TestAResponseThatIsNotChargedInFullCannotBeRead(t *testing.T) {
	v := newVendor(t, 20*time.Millisecond)
	config := ownConfig(v.URL)
	config.App += "\non_disconnect cancel\n"
	g := gatetest.Start(t, config)
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	for _, leaves := range []bool{true, false} {
		ctx, leave := context.WithCancel(t.Context())
		resp := g.Open(ctx, t, http.MethodPost, responses, headersFor(responses, key.Secret), `{"model":"priced","input":"one two three four","stream":true}`)
		start := make([]byte, 512)
		n, err := io.ReadAtLeast(resp.Body, start, 128)
		if err != nil {
			t.Fatal(err)
		}
		_, id, _ := strings.Cut(string(start[:n]), `"id":"`)
		id, _, _ = strings.Cut(id, `"`)
		want := http.StatusNotFound
		if leaves {
			leave()
		} else if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		} else {
			want = http.StatusOK
		}
		resp.Body.Close()
		g.WalletAtRest(t, key.UserID)
		gatetest.Eventually(t, fmt.Sprintf("GET of %q is answered %d", id, want), func() (int, bool) {
			got := g.Do(t, "GET", responses+"/"+id, headersFor(responses, key.Secret), "")
			return got.Status, got.Status == want
		})
		leave()
	}
}

func TestAnObjectPinsItsUpstream(t *testing.T) {
	one, two := newVendor(t, 0), newVendor(t, 0)
	g := gatetest.Start(t, ownConfig(one.URL, two.URL))
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "100.00")
	for range 20 {
		id := memberAt(t, respond(t, g, responses, key.Secret, `{"model":"priced","input":"a"}`).Body, "id")
		got := respond(t, g, responses, key.Secret, `{"model":"priced","input":"b","previous_response_id":"`+id+`"}`)
		if got.Status != http.StatusOK {
			t.Fatalf("answered %d %s", got.Status, got.Body)
		}
		if got := g.Do(t, "GET", responses+"/"+id, headersFor(responses, key.Secret), ""); got.Status != http.StatusOK {
			t.Fatalf("answered %d %s", got.Status, got.Body)
		}
	}
	if one.requests() == 0 || two.requests() == 0 {
		t.Errorf("one upstream got all calls: %d and %d", one.requests(), two.requests())
	}
}

func TestAKeyNeedsTheScopeOfTheModelThatMadeAnObject(t *testing.T) {
	v := newVendor(t, 0)
	g := gatetest.Start(t, ownConfig(v.URL))
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	objects := makeObjects(t, g, key)
	var narrow gatetest.Key
	g.MustAdmin(t, http.MethodPost, "/modelgate/keys", map[string]any{"user": key.UserID, "models": []string{"searching"}}, &narrow)
	for body, param := range map[string]string{
		`{"model":"searching","input":"x","previous_response_id":"` + objects.response + `"}`:              "previous_response_id",
		`{"model":"searching","input":[{"type":"item_reference","id":"` + objects.item + `"}]}`:            "input[0].id",
		`{"model":"searching","input":"x","tools":[{"type":"x","container":"` + objects.container + `"}]}`: "tools[0].container",
	} {
		got := respond(t, g, responses, narrow.Secret, body)
		if got.Status != http.StatusForbidden || !strings.Contains(got.Body, `"param":"`+param+`"`) {
			t.Errorf("%s is answered %d %s", body, got.Status, got.Body)
		}
	}
	if got := g.Do(t, http.MethodGet, responses+"/"+objects.response, headersFor(responses, narrow.Secret), ""); got.Status != http.StatusForbidden {
		t.Errorf("a reading is answered %d %s", got.Status, got.Body)
	}
	if got := respond(t, g, responses, narrow.Secret, `{"model":"searching","input":"x","conversation":"`+objects.conversation+`"}`); got.Status != http.StatusOK {
		t.Errorf("a conversation that no model made is answered %d %s", got.Status, got.Body)
	}
}

// background makes a background response of words, and returns its id.
func background(t *testing.T, g *gatetest.Gate, key gatetest.Key, more string) string {
	t.Helper()
	got := respond(t, g, responses, key.Secret, `{"model":"priced","input":"one two three four","background":true`+more+`}`)
	id := memberAt(t, got.Body, "id")
	if got.Status != http.StatusOK || memberAt(t, got.Body, "status") != "queued" || id == "" {
		t.Fatalf("answered %d %s", got.Status, got.Body)
	}
	return id
}

// settled waits for the settlement of all calls of a user, and returns what they have cost.
func settled(t *testing.T, g *gatetest.Gate, key gatetest.Key) string {
	t.Helper()
	spent := g.WalletAtRest(t, key.UserID)
	g.Verify(t)
	return fmt.Sprint(spent.Balance)
}

func TestABackgroundResponseIsChargedOnceWithoutItsCaller(t *testing.T) {
	v := newVendor(t, 0)
	g := gatetest.Start(t, ownConfig(v.URL))
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	respond(t, g, responses, key.Secret, `{"model":"priced","input":"one two three four"}`)
	ordinary := settled(t, g, key)

	other := g.NewKey(t, nil)
	g.Credit(t, other.UserID, "1.00")
	id := background(t, g, other, "")
	if got := settled(t, g, other); got != ordinary {
		t.Errorf("the balance is %s after a background response, %s after an ordinary one", got, ordinary)
	}
	got := g.Do(t, "GET", responses+"/"+id, headersFor(responses, other.Secret), "")
	if got.Status != http.StatusOK || memberAt(t, got.Body, "status") != "completed" {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
	stream := g.Do(t, "GET", responses+"/"+id+"?stream=true&starting_after=1", headersFor(responses, other.Secret), "")
	if stream.Status != http.StatusOK || strings.Contains(string(stream.Body), "response.created") || !strings.Contains(string(stream.Body), "response.completed") {
		t.Errorf("answered %d %s", stream.Status, stream.Body)
	}
	if got := settled(t, g, other); got != ordinary {
		t.Errorf("the balance is %s after GET", got)
	}

	streaming := g.NewKey(t, nil)
	g.Credit(t, streaming.UserID, "1.00")
	all := respond(t, g, responses, streaming.Secret, `{"model":"priced","input":"one two three four","background":true,"stream":true}`)
	if !strings.Contains(string(all.Body), "response.completed") {
		t.Errorf("answered %d %s", all.Status, all.Body)
	}
	if got := settled(t, g, streaming); got != ordinary {
		t.Errorf("the balance is %s after a background stream", got)
	}
	line := g.WaitLine(t, func(l gatetest.Line) bool {
		return l.Text("user_id") == other.UserID && l.Text("background") == "settled"
	})
	if line.Text("cost") == "" || line.Text("usage") != "reported" {
		t.Errorf("the log line is %v", line)
	}
}

func TestACancelledBackgroundResponseCostsWhatIsReported(t *testing.T) {
	v := newVendor(t, time.Hour)
	g := gatetest.Start(t, ownConfig(v.URL))
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	id := background(t, g, key, "")
	if got := g.Do(t, "DELETE", responses+"/"+id, headersFor(responses, key.Secret), ""); got.Status != http.StatusConflict {
		t.Errorf("DELETE of a running response is answered %d %s", got.Status, got.Body)
	}
	if got := g.Do(t, "POST", responses+"/"+id+"/cancel", headersFor(responses, key.Secret), ""); got.Status != http.StatusOK || memberAt(t, got.Body, "status") != "cancelled" {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
	if got := settled(t, g, key); got != "0.999999994" { // the estimated input
		t.Errorf("the balance is %s", got)
	}
	if got := g.Do(t, "DELETE", responses+"/"+id, headersFor(responses, key.Secret), ""); got.Status != http.StatusOK {
		t.Errorf("DELETE is answered %d %s", got.Status, got.Body)
	}
}
