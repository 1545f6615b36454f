package call_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

// estimatePrices adds a price for a search to mediaPrices. The context is 200,000 tokens.
const estimatePrices = mediaPrices + `
	price seeing* {
		input 0.001
		image_input 0.002
		audio_input 0.004
		output 0.01
		context 200000
		max_output 1000
		call web_search 0.000001
	}
	state shared
`

// abandon makes a call and disconnects after the backend has received it, or has sent the
// events. It returns the log line of the call.
func abandon(t *testing.T, g *gatetest.Gate, key gatetest.Key, path, model, body string, events ...string) gatetest.Line {
	t.Helper()
	script, reached, _, _ := interrupted(nil, nil)
	if len(events) > 0 {
		script, reached, _, _ = interrupted(gatetest.Stream(events...), nil)
	}
	g.Backend.On(model, script)
	conn := g.Dial(t)
	conn.Send(t, headOf(path, key.Secret, "Content-Length: "+itoa(len(body))))
	conn.Send(t, body)
	within(t, gatetest.Timeout, "the call", reached)
	if len(events) > 0 {
		readUntil(t, conn, events[len(events)-1][:20])
	}
	conn.Close()
	return g.CallLineOf(t, model)
}

func TestAnAbandonedCallIsChargedForItsWholeBody(t *testing.T) {
	const (
		image    = 5_000
		whole    = 200_000 // the context
		question = `{"type":"text","text":"What is this?"},`
		asked    = 5 // 13 bytes
	)
	pixels := strings.Repeat("A", 3200)
	link := func(n int) string {
		return strings.TrimSuffix(strings.Repeat(`{"type":"image_url","image_url":{"url":"https://example.com/a.png"}},`, n), ",")
	}
	source := func(kind, source string) string { return `{"type":"` + kind + `","source":{` + source + `}}` }
	for name, c := range map[string]struct {
		path, list, more string
		input            money.Amount // that is charged
	}{
		"text alone":                     {messages, `{"type":"text","text":"abc"}`, "", asked + 1},
		"an inline image":                {messages, source("image", `"data":"`+pixels+`","type":"base64","media_type":"image/png"`), "", asked + image*2},
		"two images in chat":             {chat, strings.Repeat(`{"type":"image_url","image_url":{"url":"data:image/png;base64,`+pixels+`"}},`, 2) + `{"type":"text","text":"abc"}`, "", asked + 1 + 2*image*2},
		"a link to an image":             {messages, source("image", `"type":"url","url":"https://example.com/a.png"`), "", asked + image*2},
		"a type after the source":        {messages, `{"source":{"url":"https:\/\/example.com\/a.png","type":"url"},"type":"image"}`, "", asked + image*2},
		"a link to an image in chat":     {chat, link(1), "", asked + image*2},
		"a link as a string":             {chat, `{"type":"image_url","image_url":"HTTP://example.com/a.png"}`, "", asked + image*2},
		"more links than the context":    {chat, link(50), "", whole*2 - asked},
		"a link in the result of a tool": {messages, `{"type":"tool_result","tool_use_id":"a","content":[` + source("image", `"type":"url","url":"https://example.com/a.png"`) + `]}`, "", asked + image*2},
		"an image in a document":         {messages, source("document", `"type":"content","content":[{"type":"text","text":"abc"},`+source("image", `"type":"base64","media_type":"image/png","data":"`+pixels+`"`)+`]`), "", asked + 1 + image*2},
		"inline audio":                   {chat, `{"type":"input_audio","input_audio":{"data":"` + pixels + `","format":"wav"}}`, "", asked + (3202/16+1)*4},
		"audio as a data URL":            {chat, `{"type":"audio_url","audio_url":{"url":"data:audio/wav;base64,` + pixels + `"}}`, "", asked + (3224/16+1)*4},
		"a text document":                {messages, source("document", `"type":"text","media_type":"text/plain","data":"`+pixels+`"`), "", (13 + 3200 + 2) / 3},
		"text as a data URL":             {chat, `{"type":"image_url","image_url":{"url":"data:text/plain,` + pixels + `"}}`, "", (13 + 3216 + 2) / 3},
		"a PDF":                          {messages, source("document", `"type":"base64","media_type":"application/pdf","data":"AAAA"`), "", whole},
		"a link to a document":           {messages, source("document", `"type":"url","url":"https://example.com/a.pdf"`), "", whole},
		"an image link with gs":          {messages, source("image", `"type":"url","url":"gs://bucket/a.mp4"`), "", whole},
		"a link to a video":              {chat, `{"type":"video_url","video_url":{"url":"https://example.com/a.mp4"}}`, "", whole},
		"a link to audio":                {chat, `{"type":"audio_url","audio_url":{"url":"https://example.com/a.mp3"}}`, "", whole},
		"a file link beside an image":    {chat, link(1) + `,{"type":"file","file":{"file_data":"https://example.com/a.pdf"}}`, "", whole + image},
		"a file":                         {messages, source("document", `"type":"file","file_id":"file_1"`), "", whole},
		"a file in chat":                 {chat, `{"type":"file","file":{"file_id":"file-1"}}`, "", whole},
		"an unknown part":                {chat, `{"type":"hologram","x":1}`, "", whole},
		"a search":                       {messages, `{"type":"text","text":"abc"}`, `,"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":2}]`, whole},
	} {
		t.Run(name, func(t *testing.T) {
			g := gatetest.Start(t, gatetest.Config{App: "on_disconnect cancel\n" + estimatePrices, Site: gatetest.Proxied})
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, "1.00")
			model := "seeing " + strings.ReplaceAll(name, ",", "")
			body := parts(model, question+c.list)
			body = body[:len(body)-1] + c.more + "}"
			line := abandon(t, g, key, c.path, model, body)
			if line.Text("ended") != "client_gone" || line.Text("rule") != "cancel" || line.Text("usage") != "estimated" || line["usage_cut"] != nil {
				t.Errorf("logged %v", line)
			}
			if more := amount(t, line.Text("cost")) - c.input; name == "a search" && (more < 0 || more > 1100) || name != "a search" && more != 0 && c.input < whole || more < 0 {
				t.Errorf("the call cost %s, want %v for its input", line.Text("cost"), c.input)
			}
			g.WalletAtRest(t, key.UserID)
			g.Verify(t)
		})
	}
}

func TestTheGreaterOfReportedAndEstimatedInputIsCharged(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "on_disconnect cancel\n" + estimatePrices, Site: gatetest.Proxied})
	for name, c := range map[string]struct {
		reported int
		input    money.Amount
	}{"less": {25, 2 + 2*5_000}, "more": {30_000, 30_000}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, "1.00")
			model := "media " + name
			body := parts(model, `{"type":"text","text":"hello"},`+strings.Repeat(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},`, 2)+`{"type":"text","text":""}`)
			body = body[:len(body)-1] + streamed + "}"
			start := strings.Replace(messageEvents[0], `"input_tokens":25`, fmt.Sprintf(`"input_tokens":%d`, c.reported), 1)
			line := abandon(t, g, key, messages, model, body, append([]string{start}, messageEvents[1:4]...)...)
			if line.Text("rule") != "cancel" || line.Text("cost") != (c.input+3*10).String() {
				t.Errorf("logged %v, want %v for the input and 3 tokens of output", line, c.input)
			}
		})
	}
}

func TestAFailureOfTheBackendLeavesTheReportedInput(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "charge_failed_input\n" + estimatePrices, Site: gatetest.Proxied})
	const (
		image = `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}`
		pdf   = `{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AAAA"}}`
		whole = 200_000
	)
	unreported := strings.Replace(messageEvents[0], `,"usage":{"input_tokens":25,"output_tokens":1}`, "", 1)
	for name, c := range map[string]struct {
		list   string
		events []string
		cost   money.Amount
	}{
		"an image":               {image, messageEvents[:4], 25 + 30},
		"a PDF":                  {pdf, messageEvents[:4], 25 + 30},
		"an image unreported":    {image, append([]string{unreported}, messageEvents[1:4]...), 5_000 + 30},
		"a PDF unreported":       {pdf, append([]string{unreported}, messageEvents[1:4]...), whole + 30},
		"a PDF before content":   {pdf, messageEvents[:1], 25},
		"an image before a byte": {image, nil, 5_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, "1.00")
			model := "media " + name
			g.Backend.On(model, gatetest.Then(gatetest.Stream(c.events...), gatetest.Reset))
			body := parts(model, c.list)
			got := g.Do(t, http.MethodPost, messages, headersFor(messages, key.Secret), body[:len(body)-1]+streamed+"}")
			if line := g.CallLine(t, got.RequestID()); line.Text("ended") != "upstream_error" || line.Text("cost") != c.cost.String() {
				t.Errorf("logged %v, want %v", line, c.cost)
			}
		})
	}
}

func TestEveryEndingWithoutAReportEstimatesTheImages(t *testing.T) {
	image := `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}`
	const cost = money.Amount(5_000)
	for rule, config := range map[string]string{
		"finish_timeout": "on_disconnect finish 50ms\n", "finish_limit": "limits {\n detached_per_user 1\n}\n", "cancel": "on_disconnect cancel\n",
	} {
		t.Run(rule, func(t *testing.T) {
			g := gatetest.Start(t, gatetest.Config{App: config + estimatePrices, Site: gatetest.Proxied})
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, "1.00")
			if rule == "finish_limit" {
				script, reached, on, _ := interrupted(nil, gatetest.JSON(500, `{"type":"error","error":{}}`))
				g.Backend.On("media other", script)
				_, leave := disconnects[0].call(t, g, messages, key.Secret, "media other", "")
				<-reached
				leave()
				awaitDetached(t, 1)
				defer close(on)
			}
			line := abandon(t, g, key, messages, "media call", parts("media call", image))
			if line.Text("rule") != rule || line.Text("cost") != cost.String() {
				t.Errorf("logged %v, want %v", line, cost)
			}
		})
	}
	t.Run("complete", func(t *testing.T) {
		g := gatetest.Start(t, gatetest.Config{App: estimatePrices, Site: gatetest.Proxied})
		key := g.NewKey(t, nil)
		g.Credit(t, key.UserID, "1.00")
		g.Backend.On("media call", gatetest.JSON(200, `{"type":"message","content":[{"type":"text","text":"abc"}]}`))
		got := g.Do(t, http.MethodPost, messages, headersFor(messages, key.Secret), parts("media call", image))
		if line := g.CallLine(t, got.RequestID()); line.Text("usage") != "estimated" || line.Text("cost") != (cost+10).String() {
			t.Errorf("logged %v, want %v", line, cost+10)
		}
	})
}

func TestARestrictedUserIsChargedTheEstimateOfTheBody(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: scaled("on_disconnect cancel\n" + estimatePrices), Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1000.00")
	g.Backend.On("media greedy", claims(1, 5000, ""))
	post(t, g, messages, key.Secret, "media greedy", "")
	g.WalletAtRest(t, key.UserID)
	line := abandon(t, g, key, messages, "media call", parts("media call", `{"type":"text","text":"abc"}`))
	if _, status := g.Admin(t, http.MethodGet, "/modelgate/status", nil); !strings.Contains(string(status), `"users_restricted":["`+key.UserID+`"],"users_restricted_names":{"`+key.UserID+`":"`) {
		t.Errorf("the status is %s", status)
	}
	if line.Text("cost") != money.Amount(scale).String() {
		t.Errorf("logged %v", line)
	}
}
