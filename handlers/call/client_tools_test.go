package call_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// plainFunction is a tool of the caller.
const plainFunction = `{"type":"function","name":"f","parameters":{"type":"object"},"output_schema":{},"defer_loading":true}`

func TestToolsThatTheCallerRunsNeedNoPrice(t *testing.T) {
	g, key := responseCalls(t)
	g.Backend.On("priced", gatetest.JSON(http.StatusOK, `{"status":"completed","output":[],"usage":{"input_tokens":9,"output_tokens":4,"total_tokens":13}}`))
	try := func(path, body, param string) {
		t.Helper()
		got := respond(t, g, path, key.Secret, body)
		switch {
		case param == "" && got.Status != http.StatusOK:
			t.Errorf("%s is answered %d %s", body, got.Status, got.Body)
		case param != "" && (got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "`"+param+"`")):
			t.Errorf("%s is answered %d %s, want an error at %s", body, got.Status, got.Body, param)
		}
	}
	for tool, param := range map[string]string{
		`{"type":"namespace","name":"n","description":"d","tools":[` + plainFunction + `,{"type":"custom","name":"c"}]}`: "",
		`{"type":"namespace","name":"n","tools":[]}`:                                                         "",
		`{"type":"namespace","name":"n","tools":[` + plainFunction + `,{"type":"web_search"}]}`:              "tools of tools[0]",
		`{"type":"namespace","name":"n","tools":[{"type":"tool_search"}]}`:                                   "tools of tools[0]",
		`{"type":"namespace","name":"n","tools":[{"type":"function","name":"f","google_search":{}}]}`:        "tools[0].tools[0].google_search",
		`{"type":"namespace","name":"n","tools":[{"name":"f","input_schema":{}}]}`:                           "tools[0].tools[0].type",
		`{"type":"namespace","name":"n","tools":[{"type":"namespace","tools":[{"type":"web_search"}]}]}`:     "tools[0].tools[0].tools",
		`{"tools":[{"type":"web_search"}],"type":"namespace"}`:                                               "tools of tools[0]",
		`{"type":"namespace","name":"n","Tools":[{"type":"web_search"}]}`:                                    "tools[0].tools",
		`{"type":"tool_search","execution":"client","description":"d","parameters":{}}`:                      "",
		`{"execution":"client","tools":[` + plainFunction + `,{"type":"mcp_toolset"}],"type":"tool_search"}`: "",
		`{"type":"tool_search"}`:                                                                                "tools[0].type",
		`{"type":"tool_search","execution":"server"}`:                                                           "tools[0].type",
		`{"type":"tool_search","execution":"Client"}`:                                                           "tools[0].type",
		`{"type":"tool_search","execution":"client","execution":"server"}`:                                      "tools[0].execution",
		`{"type":"file_search","execution":"client"}`:                                                           "tools[0].type",
		`{"type":"shell","environment":{"type":"local","skills":[{"name":"s","description":"d","path":"/s"}]}}`: "",
		`{"type":"shell"}`:                                                                                 "tools[0].type",
		`{"type":"shell","environment":null}`:                                                              "tools[0].type",
		`{"type":"shell","environment":"local"}`:                                                           "tools[0].environment",
		`{"type":"shell","environment":{"type":"container_auto"}}`:                                         "tools[0].environment",
		`{"type":"shell","environment":{"type":"container_auto","skills":[{"skill_id":"s"}]}}`:             "tools[0].environment.skills[0].skill_id",
		`{"type":"shell","environment":{"type":"container_auto","skills":[{"name":"s"}]}}`:                 "tools[0].environment.skills",
		`{"type":"shell","environment":{"type":"local","skills":[{"skill_id":"s"}]}}`:                      "tools[0].environment.skills[0].skill_id",
		`{"type":"shell","environment":{"type":"local","container_id":"c"}}`:                               "tools[0].environment.container_id",
		`{"type":"shell","environment":{"type":"local"},"environment":{"type":"container_auto"}}`:          "tools[0].environment",
		`{"type":"shell","environment":{"type":"local","Type":"container_auto"}}`:                          "tools[0].environment.type",
		`{"type":"code_interpreter","environment":{"type":"local"}}`:                                       "tools[0].type",
		`{"type":"computer_use_preview","display_width":800,"display_height":600,"environment":"browser"}`: "",
		`{"type":"computer","environment":"mac"}`:                                                          "",
		`{"type":"computer_use_preview","environment":{"type":"container_auto"}}`:                          "tools[0].environment",
		`{"type":"programmatic_tool_calling"}`:                                                             "tools[0].type",
	} {
		try(responses, `{"model":"priced","input":"x","tools":[`+tool+`]}`, param)
	}
	for item, param := range map[string]string{
		`"type":"mcp_list_tools","id":"m","server_label":"s","tools":[{"name":"x","description":null,"input_schema":{"type":"object"},"annotations":{"readOnlyHint":true}}]`: "",
		`"type":"mcp_list_tools","id":"m","server_label":"s","tools":[{"name":"x","input_schema":{},"google_search":{}}]`:                                                    "input[0].tools[0].google_search",
		`"type":"mcp_list_tools","id":"m","server_label":"s","tools":[{"name":"x","input_schema":{},"strict":true}]`:                                                         "input[0].tools[0].type",
		`"type":"mcp_list_tools","id":"m","server_label":"s","tools":[{}]`:                                                                                                   "input[0].tools[0].type",
		`"type":"tool_search_output","call_id":"c","execution":"client","tools":[{"type":"namespace","name":"n","description":"d","tools":[` + plainFunction + `]}]`:         "",
		`"type":"tool_search_output","call_id":"c","tools":[{"type":"mcp","server_label":"s","server_url":"https://example.com"}]`:                                           "tools of input[0]",
		`"type":"additional_tools","role":"developer","tools":[` + plainFunction + `,{"type":"image_generation","size":"auto"}]`:                                             "tools of input[0]",
		`"type":"shell_call","call_id":"c","action":{"commands":["ls"]},"environment":{"type":"local","skills":[{"name":"s","description":"d","path":"/s"}]}`:                "",
	} {
		try(responses, `{"model":"priced","input":[{`+item+`}]}`, param)
	}
	g.Backend.On("priced", gatetest.JSON(http.StatusOK, messageAnswer))
	for tool, param := range map[string]string{
		`{"type":"computer_toolset_20260801","configs":{}}`: "", `{"type":"browser_toolset_20260801"}`: "",
		`{"type":"namespace","name":"n","tools":[{"type":"web_search_20250305","name":"web_search"}]}`: "tools of tools[0]",
	} {
		try(messages, `{"model":"priced","max_tokens":5,"messages":[{"role":"user","content":"x"}],"tools":[`+tool+`]}`, param)
	}
}

// TestAShellOfTheCallerIsFree has a price for the shell of the vendor.
func TestAShellOfTheCallerIsFree(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: strings.Replace(responsePrices, "call web_search 0.5", "call tool_search 0.5\ncall shell 0.5", 1), Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1000.00")
	for name, c := range map[string]struct{ tool, answered, cost string }{
		"local":       {`{"type":"shell","environment":{"type":"local"}}`, `{"type":"local"}`, "0.000000049"},
		"a container": {`{"type":"shell"}`, `{"type":"container_reference","container_id":"c"}`, "0.500000049"},
		"not said":    {`{"type":"shell"}`, `null`, "1.000000049"},
		"a search":    {`{"type":"tool_search","execution":"client"}`, `{"type":"local"}`, "0.000000049"},
	} {
		call := `{"type":"shell_call","action":{"commands":["ls"]},"environment":` + c.answered + `}`
		answer := `{"status":"completed","output":[` + call + `,` + call + `],"usage":{"input_tokens":9,"output_tokens":4,"total_tokens":13}}`
		g.Backend.On("searching "+name, gatetest.JSON(http.StatusOK, answer))
		got := respond(t, g, responses, key.Secret, `{"model":"searching `+name+`","input":"x","tools":[`+c.tool+`]}`)
		if cost := g.CallLine(t, got.RequestID()).Text("cost"); got.Status != http.StatusOK || cost != c.cost {
			t.Errorf("%s: %d %s, charged %s, want %s", name, got.Status, got.Body, cost, c.cost)
		}
	}
	g.Verify(t)
}

// TestARefusalOfStateNamesTheWordsThatHelp checks a gateway with state off.
func TestARefusalOfStateNamesTheWordsThatHelp(t *testing.T) {
	g, key := responseCalls(t)
	const own, shared = "with `state own` or `state shared`", "with `state shared`"
	for _, c := range []struct{ path, member, words string }{
		{responses, `"previous_response_id":"resp_1"`, own},
		{responses, `"background":true`, own},
		{responses, `"input":[{"type":"item_reference","id":"msg_1"}]`, own},
		{responses, `"tools":[{"type":"code_interpreter","container":"cntr_1"}]`, own},
		{responses, `"input":[{"type":"message","role":"user","content":[{"type":"input_file","file_id":"file-1"}]}]`, shared},
		{responses, `"tools":[{"type":"file_search","vector_store_ids":["vs_1"]}]`, shared},
		{messages, `"container":"container_1"`, shared},
		{chat, `"messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"file-1"}}]}]`, shared},
	} {
		more := ""
		switch {
		case c.path == responses && !strings.Contains(c.member, `"input"`):
			more = `"input":"x",`
		case c.path != responses && !strings.Contains(c.member, `"messages"`):
			more = `"max_tokens":5,"messages":[{"role":"user","content":"x"}],`
		}
		got := respond(t, g, c.path, key.Secret, `{"model":"priced",`+more+c.member+`}`)
		if got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "the operator can allow it "+c.words) {
			t.Errorf("%s %s: answered %d %s, want %q", c.path, c.member, got.Status, got.Body, c.words)
		}
	}
}

func TestMembersOfTheSDKsThatNoPriceCovers(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: openPrices, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	g.Backend.On("media", gatetest.JSON(http.StatusOK, messageAnswer))
	for _, c := range []struct{ path, more, refusal string }{
		{responses, `"multi_agent":{"enabled":true}`, "`multi_agent` makes the vendor run any number of agents"},
		{responses, `"multi_agent":{"enabled":true,"max_concurrent_subagents":1}`, "any number of agents"},
		{responses, `"multi_agent":{"enabled":false,"Enabled":true}`, "any number of agents"},
		{responses, `"multi_agent":{"enabled":false},"multi_agent":{"enabled":true}`, "any number of agents"},
		{responses, `"multi_agent":true`, "any number of agents"},
		{responses, `"multi_agent":{"enabled":false,"max_concurrent_subagents":3}`, ""},
		{messages, `"billing_policy":{"type":"billing_policy","bill_to":"user_profile"}`, "`billing_policy` makes the vendor bill another account"},
		{messages, `"billing_policy":{"type":"billing_policy","bill_to":"self"}`, ""},
		{messages, `"billing_policy":{"type":"billing_policy"}`, ""},
		{messages, `"workspace_id":"wrkspc_1"`, "`workspace_id` selects another workspace"},
	} {
		body := `{"model":"media","max_tokens":5,"messages":[{"role":"user","content":"x"}],` + c.more + `}`
		if c.path == responses {
			body = `{"model":"media","input":"x",` + c.more + `}`
		}
		got := g.Do(t, http.MethodPost, c.path, headersFor(c.path, key.Secret), body)
		if c.refusal == "" && got.Status != http.StatusOK || c.refusal != "" && (got.Status != http.StatusBadRequest || !strings.Contains(got.Body, c.refusal) || g.CallLine(t, got.RequestID()).Text("code") != "UNPRICED_OPTION") {
			t.Errorf("%s: answered %d %s, want %q", c.more, got.Status, got.Body, c.refusal)
		}
	}
}
