package call_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// openPrices makes models free, except those that match media*.
const openPrices = mediaPrices + "unpriced allow"

// passing is a site with pass_member.
const passing = `
	modelgate_messages {
		pass_member trace tools[].beta
		reverse_proxy BACKEND
	}
	modelgate_completions {
		pass_member trace web_search
		pass_member tools[].beta fallbacks[].beta functions[].beta
		reverse_proxy BACKEND
	}
`

func TestUnknownMembersAreRefusedForPricedModels(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: openPrices, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	const weather = `"name":"weather","input_schema":{"type":"object"}`
	for name, c := range map[string]struct {
		path, more, param, word string // empty param: the call is accepted
	}{
		"web_search":              {chat, `,"web_search":true`, "web_search", "web_search"},
		"search_options":          {chat, `,"search_options":{"forced_search":true}`, "search_options", "search_options"},
		"connectors":              {chat, `,"connectors":[{"id":"web-search"}]`, "connectors", "connectors"},
		"data_sources":            {completions, `,"data_sources":[{"type":"azure_search"}]`, "data_sources", "data_sources"},
		"provider":                {chat, `,"provider":{"order":["a"]}`, "provider", "provider"},
		"performanceConfig":       {messages, `,"performanceConfig":{"latency":"optimized"}`, "performanceConfig", "performanceConfig"},
		"serviceTier":             {messages, `,"serviceTier":{"type":"priority"}`, "serviceTier", "serviceTier"},
		"n_cmpl":                  {completions, `,"n_cmpl":16`, "n_cmpl", "n_cmpl"},
		"beams":                   {completions, `,"num_beams":4`, "num_beams", "num_beams"},
		"use_beam_search":         {chat, `,"use_beam_search":true`, "use_beam_search", "use_beam_search"},
		"candidate_count":         {messages, `,"candidate_count":2`, "candidate_count", "candidate_count"},
		"sampling_params":         {completions, `,"sampling_params":{"n":16}`, "sampling_params", "sampling_params"},
		"generationConfig":        {messages, `,"generationConfig":{"maxOutputTokens":5000}`, "generationConfig", "generationConfig"},
		"chat_template":           {chat, `,"chat_template":"{% for i in range(9999) %}x{% endfor %}"`, "chat_template", "chat_template"},
		"an empty list":           {chat, `,"web_search":[]`, "web_search", "web_search"},
		"zero":                    {chat, `,"web_search":0`, "web_search", "web_search"},
		"escaped":                 {chat, `,"web\u005fsearch":true`, "web_search", "web_search"},
		"another case":            {chat, `,"Top_K":5`, "Top_K", "Top_K"},
		"second of a name":        {chat, `,"web_search":false,"web_search":true`, "web_search", "web_search"},
		"a name with a space":     {chat, `,"a b":1`, `[\"a b\"]`, ""},
		"a long name":             {chat, `,"` + strings.Repeat("x", 5000) + `":1`, `[\"` + strings.Repeat("x", 64) + `…\"]`, ""},
		"no name":                 {chat, `,"":1`, `[\"\"]`, ""},
		"in extra_body":           {chat, `,"extra_body":{"web_search":true}`, "extra_body.web_search", "web_search"},
		"in extra_body.google":    {chat, `,"extra_body":{"google":{"tools":[{}]}}`, "extra_body.google.tools", "tools"},
		"a prompt of chat":        {chat, `,"prompt":["a","b"]`, "prompt", "prompt"},
		"of messages":             {messages, `,"prompt":"a"`, "prompt", "prompt"},
		"messages of completions": {completions, `,"messages":[{"role":"user","content":"x"}]`, "messages", "messages"},
		"a modality":              {chat, `,"modalities":["TEXT","IMAGE"]`, "modalities", ""},

		"null and false": {chat, `,"web_search":false,"search_options":null`, "", ""},
		"a count of one": {messages, `,"n":1`, "", ""},

		"a tool by its name":      {chat, `,"tools":[{"google_search":{}}]`, "tools[0].google_search", "tools[].google_search"},
		"an empty list as a tool": {messages, `,"tools":[{"googleSearch":[]}]`, "tools[0].googleSearch", "tools[].googleSearch"},
		"a tool without a type":   {chat, `,"tools":[{"type":"function","function":{"name":"f"}},{}]`, "tools[1].type", ""},
		"a tool with a null type": {chat, `,"tools":[{"type":null,"function":{"name":"f"}}]`, "tools[0].type", ""},
		"a messages tool in chat": {chat, `,"tools":[{` + weather + `}]`, "tools[0].type", ""},
		"a tool of completions":   {completions, `,"tools":[{}]`, "tools[0].type", ""},
		"beside a function":       {chat, `,"tools":[{"type":"function","function":{"name":"f"},"google_search":{}}]`, "tools[0].google_search", "tools[].google_search"},
		"a file search beside it": {chat, `,"tools":[{"type":"function","function":{"name":"f"},"fileSearch":{}}]`, "tools[0].fileSearch", "tools[].fileSearch"},
		"beside a custom tool":    {messages, `,"tools":[{` + weather + `,"url_context":{}}]`, "tools[0].url_context", "tools[].url_context"},
		"a server tool's model":   {messages, `,"tools":[{"type":"web_search_20250305","name":"web_search","model":"media 2"}]`, "tools[0].type", ""},
		"a tool of a message":     {chat, `,"messages":[{"role":"system","content":"x","tools":[{"google_search":{}}]}]`, "messages[0].tools[0].google_search", "tools[].google_search"},
		"an untyped tool in one":  {chat, `,"messages":[{"role":"system","content":"x","tools":[{}]}]`, "messages[0].tools[0].type", ""},
		"server tool, in message": {chat, `,"messages":[{"role":"system","content":"x","tools":[{"type":"web_search"}]}]`, "tools of messages[0]", ""},
		"a tool that is added": {
			messages, `,"messages":[{"role":"user","content":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"type":"web_search_20260209","name":"web_search"}}}]}]`,
			"tools of messages[0]", "",
		},
		"a member beside its type": {
			messages, `,"messages":[{"role":"user","content":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"name":"x","google_search":{}}}}]}]`,
			"messages[0].content[0].tool.definition.google_search", "tools[].google_search",
		},
		"in functions":        {chat, `,"functions":[{"googleSearch":{}}]`, "functions[0].googleSearch", "functions[].googleSearch"},
		"a fallback's output": {messages, `,"fallbacks":[{"model":"media-2","n_predict":5000}]`, "fallbacks[0].n_predict", "fallbacks[].n_predict"},
		"a fallback's tier":   {messages, `,"fallbacks":[{"model":"media-2","serviceTier":"priority"}]`, "fallbacks[0].serviceTier", "fallbacks[].serviceTier"},

		"a custom tool of messages": {messages, `,"tools":[{` + weather + `,"cache_control":{"type":"ephemeral"},"strict":true}]`, "", ""},
		"a tool of chat":            {chat, `,"tools":[{"type":"function","function":{"name":"f","parameters":{"google_search":{}}}},{"type":"custom","custom":{"name":"c"}}]`, "", ""},
		"functions":                 {chat, `,"functions":[{"name":"f","parameters":{}}],"function_call":"auto"`, "", ""},
		"a fallback":                {messages, `,"fallbacks":[{"model":"media-2","max_tokens":5,"thinking":{"type":"disabled"},"output_config":{"effort":"low"}}]`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := messageAnswer
			if c.path != messages {
				answer = chatAnswer
			}
			body := func(model string) string {
				body := bodyFor(c.path, model, c.more)
				if strings.HasPrefix(c.more, `,"messages"`) && c.path != completions { // replaces those of bodyFor
					return strings.Replace(body, `,"messages":[{"role":"user","content":"hello"}]`, "", 1)
				}
				return body
			}
			priced, free := modelName("media member "+name), modelName("free member "+name)
			for _, model := range []string{priced, free} {
				g.Backend.On(model, gatetest.JSON(http.StatusOK, answer))
			}
			got := g.Do(t, http.MethodPost, c.path, headersFor(c.path, key.Secret), body(priced))
			switch {
			case c.param == "":
				if got.Status != http.StatusOK || len(g.Backend.Seen(priced)) != 1 {
					t.Errorf("answered %d %s", got.Status, got.Body)
				}
			case got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "`"+c.param+"`") || len(g.Backend.Seen(priced)) != 0:
				t.Errorf("answered %d %s", got.Status, got.Body)
			case c.word != "" && !strings.Contains(got.Body, "`pass_member "+c.word+"`"):
				t.Errorf("the answer does not name pass_member: %s", got.Body)
			}
			if line := g.CallLine(t, got.RequestID()); c.word != "" && line.Text("code") != "UNPRICED_OPTION" {
				t.Errorf("logged %v", line)
			}
			if strings.Contains(c.more, "media") {
				return // names a model with a price
			}
			if got := g.Do(t, http.MethodPost, c.path, headersFor(c.path, key.Secret), body(free)); got.Status != http.StatusOK {
				t.Errorf("a model without a price: answered %d %s", got.Status, got.Body)
			}
		})
	}
}

func TestStoredToolsAndModelsAreRefusedForPricedModels(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: openPrices + "\nstate shared", Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	for more, status := range map[string]int{
		`,"agent_id":"ag_1"`: 400, `,"assistantId":"asst_1"`: 400, `,"knowledge_base_ids":["kb_1"]`: 400, `,"prompt":{"id":"pmpt_1"}`: 400,
		`,"background":true`: 400, `,"deferred":true`: 400, `,"background":false`: 200,
		`,"thread_id":"thread_1","container":"c_1","attachments":[{"file_id":"file-1"}],"agent_id":null`: 200,
	} {
		g.Backend.On("media shared", gatetest.JSON(200, chatAnswer))
		if got := post(t, g, chat, key.Secret, "media shared", more); got.Status != status || status == 400 && !strings.Contains(got.Body, "UNPRICED_OPTION") {
			t.Errorf("%s: answered %d %s, want %d", more, got.Status, got.Body, status)
		}
		if got := post(t, g, chat, key.Secret, "free shared", more); got.Status != 200 {
			t.Errorf("%s: a model without a price: answered %d %s", more, got.Status, got.Body)
		}
	}
}

func TestPassMember(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: openPrices, Site: passing})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	for i, c := range []struct {
		path, more string
		status     int
	}{
		{messages, `,"trace":{"id":"1"}`, 200},
		{chat, `,"trace":"1","web_search":true,"extra_body":{"trace":1}`, 200},
		{chat, `,"tr\u0061ce":"1"`, 200},
		{chat, `,"tools":[{"type":"function","function":{"name":"f"},"beta":1}],"functions":[{"name":"f","beta":1}],"fallbacks":[{"model":"media-2","beta":1}]`, 200},
		{messages, `,"web_search":true`, 400}, // configured in the other block
		{messages, `,"beta":1`, 400},          // configured for elements of tools only
		{chat, `,"tools":[{"type":"function","function":{"name":"f"},"trace":1}]`, 400},
		{chat, `,"Trace":1`, 400},
		{chat, `,"tracer":1`, 400},
		{chat, `,"trace":1,"other":1`, 400},
	} {
		model := "media " + itoa(i)
		g.Backend.On(model, gatetest.JSON(200, messageAnswer))
		if got := post(t, g, c.path, key.Secret, model, c.more); got.Status != c.status {
			t.Errorf("%s %s: answered %d %s, want %d", c.path, c.more, got.Status, got.Body, c.status)
		}
	}
}

func TestPassMemberRefusesInvalidNames(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	for line, want := range map[string]string{
		"pass_member":                        "wrong argument count",
		`pass_member "a b"`:                  `"a b" is not the name of a member`,
		"pass_member web_*":                  "is not the name of a member",
		"pass_member messages[].a":           "is not the name of a member",
		"pass_member tools[].":               "is not the name of a member",
		"pass_member a.b":                    "is not the name of a member",
		"pass_member a\n\t\tpass_member b a": "a is given twice",
	} {
		err := g.Reload(gatetest.Config{Site: "modelgate_messages {\n" + line + "\nreverse_proxy BACKEND\n}"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}
