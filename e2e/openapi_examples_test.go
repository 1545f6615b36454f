package e2e

import (
	"crypto/md5" //nolint:gosec // the protocol of epay requires it
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/descope/virtualwebauthn"
	"github.com/pquerna/otp/totp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/internal/mail/mailtest"
)

// newExampleClient starts a gateway with all resources of the examples. Calls and videos have mock
// services; the receiver gets callbacks.
func newExampleClient(t *testing.T, receiver string) *exampleClient {
	t.Helper()
	service := gatetest.NewMockService(t)
	service.Cancels = true
	// The mock service supports one form of submissions.
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/video/generations" {
			r.URL.Path = "/v1/platform/video"
		}
		service.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	mails := new(mailtest.Server)
	mails.Start(t)
	g := gatetest.Start(t, gatetest.Config{
		App: `
		base_url http://localhost:PORT
		registration open
		mail {
			smtp ` + mails.Address() + `
			from noreply@example.com
			tls off
		}
		price demo-* {
			input 3.00
			output 15.00
			context 200000
			max_output 64000
		}
		family E demo-*
		price image-demo-* {
			image 0.02
		}
		price speech-demo-* {
			per character 0.00001
		}
		price whisper-demo-* {
			per second 0.0001
			request 0.01
		}
		price video-demo-* {
			second 0.05
			second audio 0.08
		}
		backend demo {
			models image-demo-* video-demo-2
			adapter demo
		}
		backend studio {
			models video-demo-*
			adapter platform {
				url ` + front.URL + `
				key ` + gatetest.MockServiceKey + `
				callback_secret whsec_` + serviceSecret + `
			}
		}
		callback {
			allow ` + strings.TrimPrefix(receiver, "http://") + `
		}
		plan 1 Starter {
			price 9.90
			quota 12.00
			duration 1 month
		}
		plan 2 "A first look" {
			price 0
			quota 0.50
			duration 7 days
		}
		payment demo {
			secret "` + paymentSecret + `"
		}
		payment epay {
			url https://pay.example.com
			pid 1001
			key ` + epayKey + `
			currency USD
		}
		`,
		Site: `
		modelgate_health
		modelgate_docs
		modelgate_messages {
			models demo-1
			reverse_proxy BACKEND
		}
		modelgate_openai {
			state own
			models demo-1
			@media modelgate_model image-demo-1 speech-demo-1 whisper-demo-1
			modelgate_demo @media
			reverse_proxy BACKEND
		}
		modelgate_tasks
		` + gatetest.Console,
	})
	d := newOpenAPI(t, g.Do(t, http.MethodGet, "/openapi.json", "", "").Body)
	c := &exampleClient{openAPI: d, g: g, mails: mails, ops: d.operations(), sent: make(map[string]bool), real: make(map[string]string)}

	// The backend returns the documented examples.
	g.Backend.On("demo-1", func(w http.ResponseWriter, r *http.Request) {
		var call struct{ Stream bool }
		_ = json.NewDecoder(r.Body).Decode(&call)
		if call.Stream {
			gatetest.Events(w)
			if r.URL.Path == "/v1/messages" {
				gatetest.Send(w, event("message_start", `{"type":"message_start","message":{"usage":{"input_tokens":8}}}`)+
					event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello!"}}`)+
					event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}`)+
					event("message_stop", `{"type":"message_stop"}`))
				return
			}
			if r.URL.Path == "/v1/responses" {
				gatetest.Send(w, event("response.output_text.delta", `{"type":"response.output_text.delta","delta":"Hello!"}`)+
					event("response.completed", `{"type":"response.completed","response":{"usage":{"input_tokens":8,"output_tokens":3}}}`))
				return
			}
			gatetest.Send(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello!\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
			return
		}
		content, _ := d.at(t, below("#/paths", r.URL.Path)+"/post/responses/200/content/application~1json")
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(content["example"])
	})
	g.Backend.On("", func(w http.ResponseWriter, r *http.Request) { // the routes of stored objects name no model
		path := storedID.ReplaceAllString(strings.Replace(r.URL.Path, "msg_02", "{item}", 1), "{id}")
		content, _ := d.at(t, below("#/paths", path)+"/"+strings.ToLower(r.Method)+"/responses/200/content/application~1json")
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(content["example"])
	})
	return c
}

var storedID = regexp.MustCompile(`(resp|conv)_01`)

// TestTheExamplesOfTheOpenAPIDocumentAreValid sends every example of the document to a gateway, and
// validates requests and answers by the schemas. No answer has a member that is not described.
func TestTheExamplesOfTheOpenAPIDocumentAreValid(t *testing.T) {
	events := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		events <- string(body)
	}))
	t.Cleanup(receiver.Close)
	c := newExampleClient(t, receiver.URL)
	for _, part := range []func(*exampleClient, *testing.T){
		(*exampleClient).site, (*exampleClient).account, (*exampleClient).keys, (*exampleClient).calls,
	} {
		part(c, t)
	}
	c.tasks(t, receiver.URL, events)
	c.money(t)
	c.factors(t)
	c.end(t)
	c.administration(t)
	c.g.FailStore(t)
	c.do(t, "getReadiness", exampleRequest{invalid: true, status: http.StatusServiceUnavailable})

	for id, pointer := range c.ops {
		operation, _ := c.at(t, pointer)
		all := map[string]any{"": nil}
		if _, has := operation["requestBody"]; has {
			request, _ := c.at(t, below(pointer, "requestBody"))
			for _, content := range request["content"].(object) {
				if named := examples(content.(object)); len(named) > 0 {
					all = named
				}
			}
		}
		for name := range all {
			if what := strings.TrimSpace(id + " " + name); !c.sent[what] {
				t.Errorf("%s was not sent", what)
			}
		}
	}
}

func (c *exampleClient) site(t *testing.T) {
	for _, id := range []string{"getHealth", "getReadiness", "getTaskReadiness", "getIndex", "getOpenAPIAsJSON", "getOpenAPIAsYAML", "getLLMs", "getStatus"} {
		c.do(t, id, exampleRequest{})
	}
	c.do(t, "getIndex", exampleRequest{header: "Accept: text/html"})
}

func (c *exampleClient) account(t *testing.T) {
	line := c.g.WaitLine(t, func(line gatetest.Line) bool { return line.Text("code") != "" })
	c.do(t, "setUp", exampleRequest{body: `{"code":"` + line.Text("code") + `","username":"root","password":"correct horse battery staple"}`})
	c.do(t, "register", exampleRequest{})
	c.do(t, "getSelf", exampleRequest{invalid: true, status: http.StatusUnauthorized})
	user, _ := c.data(t, "logIn", exampleRequest{})["user"].(object)
	c.real["usr_4mXq0Zt9RkLw2Hsd"], _ = user["id"].(string)
	c.g.Credit(t, c.real["usr_4mXq0Zt9RkLw2Hsd"], "100.00")
	first := c.cookie
	c.do(t, "logIn", exampleRequest{})
	sessions, _ := c.data(t, "listSessions", exampleRequest{header: first})["items"].([]any)
	for _, session := range sessions {
		if session := session.(object); session["current"] == false {
			c.real["ses_4mXq0Zt9RkLw2Hsd"], _ = session["id"].(string)
		}
	}
	c.do(t, "endSession", exampleRequest{header: first})
	c.do(t, "logIn", exampleRequest{})
	c.do(t, "endSessions", exampleRequest{header: c.cookie})
	for _, id := range []string{"getSelf", "changeSelf", "listActivity", "listCallModels", "getFactors"} {
		c.do(t, id, exampleRequest{header: c.cookie})
	}
}

func (c *exampleClient) keys(t *testing.T) {
	made := c.data(t, "createKey", exampleRequest{header: c.cookie})
	c.real["key_4mXq0Zt9RkLw2Hsd"], _ = made["id"].(string)
	rotated := c.data(t, "rotateKey", exampleRequest{header: c.cookie})
	secret, _ := rotated["api_key"].(string)
	c.key = "Authorization: Bearer " + secret
	for _, id := range []string{"listKeys", "getKey", "createAccessToken", "getSelf", "revokeAccessToken"} {
		c.do(t, id, exampleRequest{header: c.cookie})
	}
}

func (c *exampleClient) calls(t *testing.T) {
	for _, x := range []exampleRequest{{example: "plain"}, {example: "stream"}} {
		x.header = c.key
		c.do(t, "createMessage", x)
		c.do(t, "createChatCompletion", x)
		c.do(t, "createResponse", x)
	}
	for _, id := range []string{
		"countTokens", "createCompletion", "countResponseTokens", "compactResponse", "createEmbedding", "createModeration", "rerank", "rerankV2",
		"listModels", "getModel", "getKeyUsage",
	} {
		c.do(t, id, exampleRequest{header: c.key})
	}
	for _, id := range []string{ // deletions last
		"getResponse", "cancelResponse", "listResponseInputItems", "createConversation", "getConversation", "updateConversation",
		"createConversationItems", "listConversationItems", "getConversationItem", "deleteConversationItem", "deleteConversation", "deleteResponse",
	} {
		c.do(t, id, exampleRequest{header: c.key})
	}
	const recording = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-demo-1\r\n" +
		"--b\r\nContent-Disposition: form-data; name=\"response_format\"\r\n\r\nverbose_json\r\n" +
		"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.mp3\"\r\n\r\nbytes\r\n--b--\r\n"
	unbound := c.g.NewKey(t, nil) // the documented key may not use these models
	c.g.Credit(t, unbound.UserID, "10.00")
	for _, id := range []string{"createImage", "editImage", "createSpeech", "createTranscription", "createTranslation"} {
		x := exampleRequest{header: "Authorization: Bearer " + unbound.Secret}
		if strings.HasPrefix(id, "createTrans") {
			x.form = recording
		}
		c.do(t, id, x)
	}
	for _, id := range []string{"listModels", "getModel"} {
		c.do(t, id, exampleRequest{header: c.key + "\nAnthropic-Version: 2023-06-01"})
	}
	c.do(t, "createMessage", exampleRequest{example: "plain", invalid: true, status: http.StatusUnauthorized})
	c.do(t, "getModel", exampleRequest{header: c.key, path: map[string]string{"id": "demo-2"}, invalid: true, status: http.StatusNotFound})
}

// videos sends the examples of the former videos API, to the service that keeps its videos.
func (c *exampleClient) videos(t *testing.T) {
	image := c.real["task_01"]
	x := exampleRequest{header: c.key, body: `{"model":"video-demo-2","prompt":"A lighthouse at dusk","seconds":"4"}`}
	_, video := c.do(t, "createVideo", x)
	c.real["task_01"], _ = video["id"].(string)
	x.query = "dry_run=true"
	c.do(t, "createVideo", x)
	c.do(t, "remixVideo", exampleRequest{header: c.key, invalid: true, status: http.StatusConflict})
	c.g.Until(t, c.real["task_01"], "success")
	for _, id := range []string{"getVideo", "listVideos", "getVideoContent", "remixVideo", "deleteVideo"} {
		c.do(t, id, exampleRequest{header: c.key})
	}
	c.do(t, "deleteVideo", exampleRequest{header: c.key, invalid: true, status: http.StatusNotFound})
	c.real["task_01"] = image
}

func (c *exampleClient) tasks(t *testing.T, receiver string, events <-chan string) {
	c.real["https://hooks.example.com/tasks"] = receiver
	c.do(t, "changeKey", exampleRequest{header: c.cookie})
	c.do(t, "renewCallbackSecret", exampleRequest{header: c.cookie})
	c.do(t, "testCallback", exampleRequest{header: c.cookie})
	<-events

	// submit sends a submission and sets the real id of task_01.
	submit := func(id string, x exampleRequest) {
		_, body := c.do(t, id, x)
		if data, is := body["data"].(object); is {
			body = data
		}
		c.real["task_01"], _ = body["task_id"].(string)
	}
	for _, id := range []string{"submitVideo", "createVideoGeneration"} {
		x := exampleRequest{header: c.key}
		if id == "submitVideo" {
			x.example = "text"
		}
		submit(id, x)
		x.query = "dry_run=true"
		c.do(t, id, x)
	}
	c.do(t, "getVideoGeneration", exampleRequest{header: c.key})
	c.do(t, "cancelTask", exampleRequest{header: c.key})
	c.do(t, "getVideoGeneration", exampleRequest{header: c.key})
	c.do(t, "cancelTask", exampleRequest{header: c.key, path: map[string]string{"task_id": "task_none"}, invalid: true, status: http.StatusNotFound})
	submit("submitVideo", exampleRequest{header: c.key, example: "firstFrame"})
	c.do(t, "submitVideo", exampleRequest{header: c.key, example: "firstFrame", invalid: true, status: http.StatusConflict})
	c.do(t, "cancelOwnTask", exampleRequest{header: c.cookie})
	c.do(t, "takeNotice", exampleRequest{header: "Webhook-Id: job-1"})
	c.do(t, "listTaskModels", exampleRequest{header: c.cookie})
	c.do(t, "submitOwnTask", exampleRequest{header: c.cookie, query: "dry_run=true"})
	submit("submitOwnTask", exampleRequest{header: c.cookie})
	submit("submitImage", exampleRequest{header: c.key})
	c.g.Until(t, c.real["task_01"], "success")
	_, image := c.do(t, "getTask", exampleRequest{header: c.key})
	result, _ := image["result"].(object)
	link, _ := result["url"].(string)
	parts := strings.Split(link, "/")
	c.do(t, "getFile", exampleRequest{path: map[string]string{"name": parts[len(parts)-2], "media_name": parts[len(parts)-1]}})
	c.do(t, "getFile", exampleRequest{path: map[string]string{"name": "none", "media_name": "none"}, invalid: true, status: http.StatusNotFound})
	c.do(t, "listTasks", exampleRequest{header: c.key})
	c.videos(t)
	c.do(t, "getOwnTask", exampleRequest{header: c.cookie})
	c.do(t, "listOwnTasks", exampleRequest{header: c.cookie})

	for callback := ""; !strings.Contains(callback, "task.succeeded"); {
		callback = receive(t, events, "the callback of the image")
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(callback))
		if err != nil {
			t.Fatal(err)
		}
		c.check(t, "taskEnded", c.ops["taskEnded"]+"/requestBody/content/application~1json/schema", value)
		c.sent["taskEnded"] = true
	}
	list := gatetest.Eventually(t, "the callback is delivered", func() (object, bool) {
		list := c.data(t, "listCallbacks", exampleRequest{header: c.cookie})
		return list, strings.Contains(fmt.Sprint(list), "delivered") && !strings.Contains(fmt.Sprint(list), "undelivered")
	})
	latest := list["items"].([]any)[0].(object)
	c.real["evt_01"], _ = latest["id"].(string)
	c.do(t, "redeliverCallback", exampleRequest{header: c.cookie})
}

func (c *exampleClient) money(t *testing.T) {
	for _, id := range []string{
		"listPlans", "getPlan", "buyPlan", "claimPlan", "renewSubscription", "listSubscriptions", "getSubscription", "setPreference", "getTopUpInfo", "buyPlan", "getSelf",
	} {
		c.do(t, id, exampleRequest{header: c.cookie})
	}
	order := c.data(t, "openOrder", exampleRequest{header: c.cookie})
	c.real["4mXq0Zt9RkLw2Hsd4mXq0Zt9RkLw2Hsd"], _ = order["trade_no"].(string)
	c.do(t, "getPaymentPage", exampleRequest{})
	c.do(t, "usePaymentPage", exampleRequest{})
	c.do(t, "takePaymentNotice", exampleRequest{header: "Webhook-Id: notice_01"})
	notice := url.Values{
		"pid": {"1001"}, "trade_no": {"20261123"}, "out_trade_no": {strings.Repeat("0", 32)}, "type": {"alipay"},
		"name": {"top-up"}, "money": {"20.00"}, "trade_status": {"TRADE_SUCCESS"},
	}
	plain, _ := url.QueryUnescape(notice.Encode()) // in the order of the names
	sum := md5.Sum([]byte(plain + epayKey))        //nolint:gosec // the protocol of epay requires it
	notice.Set("sign", hex.EncodeToString(sum[:]))
	notice.Set("sign_type", "MD5")
	c.do(t, "takePaymentNoticeByGet", exampleRequest{path: map[string]string{"provider": "epay"}, query: notice.Encode()})
	for _, id := range []string{"getOrder", "listOrders", "listLedger", "getUsage"} {
		c.do(t, id, exampleRequest{header: c.cookie})
	}
	calls := c.data(t, "listCalls", exampleRequest{header: c.cookie})["items"].([]any)
	c.real["req_aebagbafaydqqcikbmga2dqpca"], _ = calls[0].(object)["request_id"].(string)
	c.do(t, "getCall", exampleRequest{header: c.cookie})
	for _, id := range []string{"listLedger", "listCalls"} {
		c.do(t, id, exampleRequest{header: c.cookie, query: "format=csv"})
	}
}

func (c *exampleClient) factors(t *testing.T) {
	seed, _ := c.data(t, "setUpTOTP", exampleRequest{header: c.cookie})["secret"].(string)
	code, err := totp.GenerateCode(seed, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c.real["123456"] = code
	backup := func(id string) (codes []any) {
		codes, _ = c.data(t, id, exampleRequest{header: c.cookie})["backup_codes"].([]any)
		return codes
	}
	codes := backup("enableTOTP")
	// next maps the backup code of the examples to the next unused code.
	next := func() {
		c.real["123456"], _ = codes[0].(string)
		codes = codes[1:]
	}
	verify := func() {
		next()
		c.do(t, "verify", exampleRequest{header: c.cookie, example: "code"})
	}
	c.do(t, "beginPasskey", exampleRequest{header: c.cookie, invalid: true, status: http.StatusForbidden})
	verify()
	next()
	codes = backup("renewBackupCodes")

	site := virtualwebauthn.RelyingParty{ID: "localhost", Name: "localhost", Origin: strings.Replace(c.g.URL(""), "127.0.0.1", "localhost", 1)}
	device, passkey := virtualwebauthn.NewAuthenticator(), newPasskey()
	options := func(id string) string {
		text, err := json.Marshal(c.data(t, id, exampleRequest{header: c.cookie}))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	verify()
	asked, err := virtualwebauthn.ParseAttestationOptions(options("beginPasskey"))
	if err != nil {
		t.Fatal(err)
	}
	device.Options.UserHandle = []byte(asked.UserID)
	made := c.data(t, "finishPasskey", exampleRequest{header: c.cookie, body: virtualwebauthn.CreateAttestationResponse(site, device, passkey, *asked)})
	c.real["pk_4mXq0Zt9RkLw2Hsd"], _ = made["id"].(string)
	c.do(t, "listPasskeys", exampleRequest{header: c.cookie})
	use := func(begin, finish string) {
		asked, err := virtualwebauthn.ParseAssertionOptions(options(begin))
		if err != nil {
			t.Fatal(err)
		}
		passkey.Counter++
		c.do(t, finish, exampleRequest{header: strings.TrimSpace(c.cookie + "\n" + c.ceremony), body: virtualwebauthn.CreateAssertionResponse(site, device, passkey, *asked)})
		c.ceremony = ""
	}
	use("beginPasskeyVerification", "finishPasskeyVerification")
	c.do(t, "verify", exampleRequest{header: c.cookie, example: "passkey"})
	next()
	c.do(t, "disableTOTP", exampleRequest{header: c.cookie})
	use("beginPasskeyLogIn", "finishPasskeyLogIn")
	use("beginPasskeyVerification", "finishPasskeyVerification")
	c.do(t, "verify", exampleRequest{header: c.cookie, example: "passkey"})
	c.do(t, "removePasskey", exampleRequest{header: c.cookie})

	// A log-in with a second factor.
	seed, _ = c.data(t, "setUpTOTP", exampleRequest{header: c.cookie})["secret"].(string)
	if c.real["123456"], err = totp.GenerateCode(seed, time.Now().Add(codeStep*time.Second)); err != nil {
		t.Fatal(err)
	}
	codes = backup("enableTOTP")
	c.do(t, "logIn", exampleRequest{})
	next()
	c.do(t, "logInWithCode", exampleRequest{header: c.cookie})
	verify()
}

func (c *exampleClient) end(t *testing.T) {
	c.do(t, "changeSelf", exampleRequest{header: c.cookie, body: `{"email":"alice@example.com","balance_notice":"5.00"}`})
	code := regexp.MustCompile(`\w{5}(-\w{5}){3}`).FindString(c.mails.Next(t).Text)
	c.do(t, "confirmEmail", exampleRequest{header: c.cookie, body: `{"code":"` + code + `"}`})
	c.do(t, "forgotPassword", exampleRequest{})
	c.mails.Next(t)
	c.do(t, "changePassword", exampleRequest{header: c.cookie})
	c.do(t, "revokeKey", exampleRequest{header: c.cookie})
	c.do(t, "logOut", exampleRequest{header: c.cookie})
	var reset struct{ Code string }
	c.g.MustAdmin(t, http.MethodPost, "/modelgate/users/alice/reset-password", nil, &reset)
	c.do(t, "resetPassword", exampleRequest{body: `{"code":"` + reset.Code + `","password":"purple monkey dishwasher"}`})
}
