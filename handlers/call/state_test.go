package call

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/modelcall"
	"github.com/caddy-modelgate/modelgate/internal/strictform"
)

// statefulMembers are the known members that refer to state of a vendor's account or of an
// inference server, with the places where vendors accept them. The list is independent of
// the rules, so that the test fails if a rule is removed.
var statefulMembers = []struct{ where, member string }{
	{"body", `"previous_response_id":"resp_1"`}, {"body", `"conversation":"conv_1"`}, {"body", `"conversation":{"id":"conv_1"}`},
	{"body", `"container":"container_1"`}, {"body", `"container":{"id":"container_1"}`}, {"body", `"container":{"skills":[{"skill_id":"s"}]}`},
	{"body", `"fallback_credit_token":"t"`}, {"body", `"diagnostics":{"previous_message_id":"msg_1"}`}, {"body", `"background":true`},
	{"body", `"request_id":"cmpl-1"`}, {"body", `"rid":"1"`}, {"body", `"id_slot":3`}, {"body", `"session_params":{"id":"s"}`},
	{"body", `"kv_transfer_params":{"do_remote_prefill":true}`}, {"body", `"bootstrap_room":7`}, {"body", `"deferred":true`},
	{"body", `"cached_content":"cachedContents/1"`}, {"body", `"extra_body":{"google":{"cached_content":"cachedContents/1"}}`},
	{"body", `"extra_body":{"container":"container_1"}`}, {"body", `"tool_resources":{"file_search":{"vector_store_ids":["vs_1"]}}`},
	{"body", `"audio":{"voice":{"id":"voice_1"}}`}, {"body", `"mcp_servers":[{"connector_id":"c"}]`}, {"body", `"file_ids":["file-1"]`},
	{"body", `"cont\u0061iner":"container_1"`},
	{"body", `"cachedContent":"cachedContents/1"`}, {"body", `"previousResponseId":"resp_1"`}, {"body", `"Previous-Response-ID":"resp_1"`},
	{"body", `"thread_id":"thread_1"`}, {"body", `"thread":{"type":"create"}`}, {"body", `"thread":{"type":"continue","previous_message_id":"msg_1"}`}, {"body", `"assistant_id":"asst_1"`}, {"body", `"agent_id":"ag_1"`}, {"body", `"agentId":"ag_1"`},
	{"body", `"cache_id":"cache-1"`}, {"body", `"c\u0061cheId":"cache-1"`}, {"body", `"conversationId":"1"`}, {"body", `"knowledge_base_ids":["kb"]`},
	{"body", `"file_uri":"gs://b/f"`}, {"body", `"attachments":[{"file_id":"file-1"}]`}, {"body", `"attachments":[{"id":"1"}]`},
	{"body", `"documents":[{"data":"text"},{"id":"doc_1"}]`}, {"body", `"documents":["doc_1"]`}, {"body", `"documents":"doc_1"`},
	{"body", `"documents":[{"data":{"file_id":"file-1"}}]`}, {"body", `"Documents":[{"text":"x","document_id":"doc_1"}]`},
	{"body", `"audio":{"id":"audio_1"}`}, {"body", `"audio":{"voice":{"Id":"voice_1"}}`}, {"body", `"Diagnostics":{"previous_message_id":"msg_1"}`},
	{"body", `"extra_body":{"Google":{"cachedContent":"cachedContents/1"}}`}, {"body", `"extra_body":{"threadId":"thread_1"}`},
	{"body", `"ec_transfer_params":{"x":1}`}, {"template", `"prompt":{"id":"pmpt_1"}`}, {"template", `"prompt":{"ID":"pmpt_1","variables":{}}`},
	{"tool", `"container":"cntr_1"`}, {"tool", `"container":{"type":"auto","file_ids":["file-1"]}`}, {"tool", `"vector_store_ids":["vs_1"]`},
	{"tool", `"connector_id":"c"`}, {"tool", `"tunnel_id":"t"`}, {"tool", `"environment":{"container_id":"cntr_1"}`},
	{"tool", `"input_image_mask":{"file_id":"file-1"}`}, {"tool", `"file_search":{"vector_store_ids":["vs_1"]}`},
	{"tool", `"fileIds":["file-1"]`}, {"tool", `"fileSearch":{"vectorStoreIds":["vs_1"]}`}, {"tool", `"Environment":{"container_id":"cntr_1"}`},
	{"message", `"attachments":[{"id":"1"}]`}, {"message", `"Audio":{"id":"audio_1"}`}, {"message", `"threadId":"thread_1"`},
	{"message", `"tools":[{"type":"custom","container":"cntr_1"}]`},
	{"message", `"audio":{"id":"audio_1"}`}, {"message", `"file_ids":["file-1"]`}, {"message", `"video":"file-1"`},
	{"message", `"images":[{"image_url":{"url":"ms://file-1"}}]`}, {"message", `"image_url":{"url":"file:///etc/passwd"}`},
	{"item", `"type":"item_reference","id":"msg_1"`}, {"item", `"id":"msg_1"`}, {"item", `"type":"message","id":"msg_1"`}, {"item", `"type":null,"\u0069d":"msg_1","content":[]`},
	{"item", `"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"x"}]`}, {"item", `"type":"reasoning","id":"rs_1","content":[{"type":"reasoning_text","text":"x"}]`},
	{"item", `"type":"image_generation_call","id":"ig_1"`}, {"item", `"type":"compaction","id":"cmp_1"`}, {"item", `"type":"file_search_call","id":"fs_1","queries":[]`},
	{"item", `"type":"code_interpreter_call","id":"ci_1","code":"1","container_id":"cntr_1"`}, {"item", `"type":"function_call_output","call_id":"c","output":[{"type":"input_file","file_id":"file-1"}]`},
	{"item", `"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","file_id":"file-1"}`},
	{"item", `"type":"Item-Reference","id":"msg_1","content":"x"`}, {"item", `"type":"\u0069temReference","id":"msg_1","content":"x"`}, {"part", `"type":"ITEM_REFERENCE"`},
	{"item", `"id":"msg_1","action":{"type":"search"}`}, {"item", `"id":"msg_1","content":"x"`}, {"item", `"type":"message","id":"msg_1","role":"assistant","arguments":"x"`},
	{"item", `"type":"file_search_call","id":"fs_1","queries":["x"]`}, {"item", `"type":"file_search_call","id":"fs_1","queries":["x"],"results":null`},
	{"item", `"type":"file_search_call","id":"fs_1","queries":["x"],"results":[]`}, {"item", `"type":"file_search_call","id":"fs_1","queries":["x"],"results":[ ]`},
	{"item", `"type":"program_output","id":"po_1","call_id":"c"`}, {"item", `"type":"program_output","id":"po_1","call_id":"c","result":null`}, {"item", `"type":"program_output","id":"po_1","output":"x"`},
	{"item", `"type":"apply_patch_call_output","id":"ap_1","call_id":"c"`}, {"item", `"type":"mcp_list_tools","id":"ml_1","server_label":"s"`}, {"item", `"type":"mcp_list_tools","id":"ml_1","tools":null`},
	{"item", `"type":"image_generation_call","id":"ig_1","result":""`}, {"item", `"type":"image_generation_call","result":"file:///etc/passwd"`}, {"item", `"type":"message","id":"msg_1","role":"assistant","content":[]`},
	{"item", `"type":"function_call_output","id":"fo_1","call_id":"c","output":null`}, {"item", `"type":"shell_call","action":{"commands":[]},"environment":{"type":"container_auto","skills":[{"name":"s"}]}`},
	{"item", `"type":"mcp_list_tools","id":"ml_1","tools":[{"name":"t","input_schema":{},"container_id":"c"}]`},
	{"item", `"type":"function_call","id":"fc_1","code":"x"`}, {"item", `"type":"function_call_output","id":"fc_1","call_id":"c","arguments":"x"`},
	{"item", `"type":"shell_call","id":"sh_1","action":{"commands":["ls"]},"environment":{"type":"container_reference","container_id":"cntr_1"}`},
	{"tool", `"container":["cntr_1"]`}, {"tool", `"container":{"id":"cntr_1"}`}, {"tool", `"Container":{"Id":"cntr_1"}`},
	{"part", `"type":"document","source":{"type":"file","file_id":"file_1"}`}, {"part", `"type":"image","source":{"type":"file","file_id":"file_1"}`},
	{"part", `"type":"container_upload","file_id":"file_1"`}, {"part", `"type":"container_upload"`}, {"part", `"type":"item_reference","id":"msg_1"`},
	{"part", `"type":"file","file":{"file_id":"file-1"}`}, {"part", `"type":"input_file","file_id":"file-1"`}, {"part", `"type":"image_url","image_url":null,"uuid":"u"`},
	{"part", `"type":"image_url","image_url":{"url":"ms://file-1"}`}, {"part", `"type":"image_url","image_url":{"url":"file:///etc/passwd"}`},
	{"part", `"type":"image","source":{"type":"url","url":"gs://bucket/file"}`}, {"part", `"type":"video_url","video_url":"file-1"`},
	{"part", `"type":"tool_result","content":[{"type":"image","source":{"type":"file","file_id":"file_1"}}]`},
	{"part", `"type":"tool_result","content":[{"type":"document","source":{"type":"content","content":[{"type":"image","source":{"type":"file","file_id":"file_1"}}]}}]`},
	{"part", `"type":"web_fetch_tool_result","content":{"type":"web_fetch_result","content":{"type":"document","source":{"type":"file","file_id":"file_1"}}}`},
	{"part", `"fileData":{"mimeType":"application/pdf","fileUri":"gs://b/f"}`}, {"part", `"file_data":{"file_uri":"files/1"}`}, {"part", `"fileUri":"files/1"`},
	{"part", `"image":{"format":"png","source":{"s3Location":{"uri":"s3://b/f"}}}`}, {"part", `"source":{"s3_location":{}}`}, {"part", `"video":{"s3Uri":"x","source":{"s3Location":{}}}`},
	{"part", `"type":"input_audio","input_audio":{"url":"file:///etc/passwd"}`}, {"part", `"type":"input_audio","input_audio":{"data":"file:///etc/passwd"}`},
	{"part", `"type":"input_video","input_video":{"data":"file:///etc/passwd"}`}, {"part", `"type":"input_video","input_video":{"url":"video-1"}`},
	{"part", `"type":"tool_addition","tool":{"type":"tool_definition","definition":{"type":"custom","container":"cntr_1"}}`},
	{"part", `"type":"code_execution_tool_result","content":{"type":"code_execution_result","content":[{"type":"code_execution_output","file_id":"file_1"}]}`},
}

// statefulBody returns a body for the route with a stateful member.
func statefulBody(rt *route, where, member string) (body string, applies bool) {
	switch {
	case rt.schema == modelcall.ItemList:
		body = strings.Replace(strings.Replace(statefulInput(where, member), `"input"`, `"items"`, 1), `"model":"m",`, "", 1)
		return body, where != "template" && where != "tool"
	case rt.schema.Unit != catalog.NoUnit:
		own := `"prompt":"x"`
		if rt.schema == modelcall.Speech {
			own = `"input":"x","voice":"alloy"`
		}
		return fmt.Sprintf(`{"model":"m",%s,%s}`, own, member), where == "body" && !isBackground(rt, member)
	case rt.answer.InputOnly:
		own := `"input":"x"`
		if rt.schema == modelcall.Rerank {
			own = `"query":"q","documents":["x"]`
		}
		return fmt.Sprintf(`{"model":"m",%s,%s}`, own, member), where == "body" && !strings.Contains(strings.ToLower(member), `"documents`)
	case rt.Dialect == dialect.Responses:
		return statefulInput(where, member), true
	case where == "item":
		return "", false
	}
	chatLike := rt.Path != "/v1/completions"
	message, part, tool, more := "", "", "", ""
	switch where {
	case "body":
		more = "," + member
	case "template":
		more, applies = ","+member, chatLike
	case "tool":
		tool = "," + member
	case "message":
		message, applies = ","+member, chatLike
	case "part":
		part = ",{" + member + "}"
	}
	body = fmt.Sprintf(`{"model":"m","max_tokens":5,"tools":[{"type":"custom","name":"t"%s}]%s`, tool, more)
	if !chatLike {
		return body + `,"prompt":"p"}`, where == "body" || where == "tool"
	}
	body += fmt.Sprintf(`,"messages":[{"role":"user","content":[{"type":"text","text":"x"}%s]%s}]}`, part, message)
	return body, true
}

// isBackground reports whether member is background on a route of images, where it is a string that is
// no state.
func isBackground(rt *route, member string) bool {
	return strings.HasPrefix(rt.name, "image") && strings.HasPrefix(member, `"background"`)
}

// statefulForm returns a form for the route with a stateful member. A member that has objects in
// arrays or in objects is not the field of a form.
func statefulForm(t *testing.T, rt *route, member string) (form *strictform.Form, applies bool) {
	t.Helper()
	var members map[string]any
	if err := json.Unmarshal([]byte("{"+member+"}"), &members); err != nil {
		t.Fatal(err)
	}
	form = &strictform.Form{Parts: []strictform.Part{{Name: "model", Data: []byte("m")}, {Name: "prompt", Data: []byte("x")}}}
	file := "file"
	if rt.name == "image_edits" {
		file = "image"
	}
	form.Parts = append(form.Parts, strictform.Part{Name: file, File: true, Data: []byte("x")})
	applies = true
	add := func(name string, value any) {
		switch value.(type) {
		case map[string]any, []any:
			applies = false
		}
		form.Parts = append(form.Parts, strictform.Part{Name: name, Data: fmt.Append(nil, value)})
	}
	for name, value := range members {
		switch value := value.(type) {
		case map[string]any:
			for inner, value := range value {
				add(name+"["+inner+"]", value)
			}
		case []any:
			for _, value := range value {
				add(name+"[]", value)
			}
		default:
			add(name, value)
		}
	}
	return form, applies
}

func TestNoFormLetsAStatefulMemberPassUnlessStateIsShared(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, rt := range allRoutes {
		for _, c := range statefulMembers {
			if rt.form == nil || c.where != "body" || isBackground(rt, c.member) {
				continue
			}
			form, applies := statefulForm(t, rt, c.member)
			if !applies {
				continue
			}
			tried++
			if _, f := new(modelcall.Request).ParseForm(rt.form, form, false); f == nil || f.Param == "" || !strings.Contains(f.Message, "state shared") {
				t.Errorf("%s: %s passes, or is refused as something else: %v", rt.name, c.member, f)
			}
			if _, f := new(modelcall.Request).ParseForm(rt.form, form, true); f != nil {
				t.Errorf("%s with state shared: %s is refused: %v", rt.name, c.member, f)
			}
		}
	}
	if tried < 60 {
		t.Errorf("only %d forms were tried", tried)
	}
}

// statefulInput is statefulBody for responses.
func statefulInput(where, member string) string {
	body, tool, message, part, item := "", "", "", "", ""
	switch where {
	case "body", "template":
		body = "," + member
	case "tool":
		tool = "," + member
	case "message":
		message = "," + member
	case "part":
		part = ",{" + member + "}"
	case "item":
		item = ",{" + member + "}"
	}
	return fmt.Sprintf(`{"model":"m","tools":[{"type":"custom","name":"t"%s}],"input":[{"role":"user","content":[{"type":"input_text","text":"x"}%s]%s}%s]%s}`,
		tool, part, message, item, body)
}

// allRoutes are the routes of all directives.
var allRoutes = slices.Concat(messagesRoutes, completionsRoutes, openAIRoutes)

// jsonRoutes returns the routes that take JSON.
func jsonRoutes() []*route {
	return slices.DeleteFunc(slices.Clone(allRoutes), func(rt *route) bool { return rt.schema == nil || rt.schema == modelcall.NoBody })
}

func TestNoRouteLetsAStatefulMemberPassUnlessStateIsShared(t *testing.T) {
	t.Parallel()
	for _, rt := range jsonRoutes() {
		for _, c := range statefulMembers {
			body, applies := statefulBody(rt, c.where, c.member)
			if !applies {
				continue
			}
			if f := new(modelcall.Request).Parse(rt.schema, []byte(body), false); f == nil || f.Param == "" || !strings.Contains(f.Message, "state shared") {
				t.Errorf("%s: %s passes, or is refused as something else: %v", rt.name, body, f)
			}
			if f := new(modelcall.Request).Parse(rt.schema, []byte(body), true); f != nil {
				t.Errorf("%s with state shared: %s is refused: %v", rt.name, body, f)
			}
		}
	}
}

// TestEveryPricedRouteRefusesAnUndeclaredMember plants a member that no schema declares.
func TestEveryPricedRouteRefusesAnUndeclaredMember(t *testing.T) {
	t.Parallel()
	tried := map[string]int{}
	try := func(rt *route, q *modelcall.Request, body []byte, f *fault.Fault, param string) {
		t.Helper()
		tried[rt.name]++
		if f == nil {
			f = q.RefuseUnpriced(body, nil)
		}
		if f == nil || f.Code != fault.UnpricedOption || f.Param != param {
			t.Errorf("%s: %s: want UNPRICED_OPTION at %s, got %v", rt.name, body, param, f)
		}
	}
	const planted = `"undeclared":{"x":1}`
	for _, rt := range allRoutes {
		if rt.free {
			continue
		}
		if rt.form != nil {
			form, _ := statefulForm(t, rt, `"undeclared":"x"`)
			q := new(modelcall.Request)
			body, f := q.ParseForm(rt.form, form, false)
			try(rt, q, body, f, "undeclared")
		}
		if rt.schema == nil {
			continue
		}
		for _, c := range []struct{ where, member, param string }{
			{"body", planted, "undeclared"}, {"body", `"extra_body":{` + planted + `}`, "extra_body.undeclared"}, {"tool", planted, "tools[0].undeclared"},
		} {
			if body, applies := statefulBody(rt, c.where, c.member); applies {
				q := new(modelcall.Request)
				try(rt, q, []byte(body), q.Parse(rt.schema, []byte(body), false), c.param)
			}
		}
	}
	for _, rt := range allRoutes {
		if !rt.free && tried[rt.name] == 0 {
			t.Errorf("nothing was planted on %s: %v", rt.name, tried)
		}
	}
}

func TestMembersWithoutStoredStatePass(t *testing.T) {
	t.Parallel()
	for _, rt := range jsonRoutes() {
		for _, c := range []struct{ where, member string }{
			{"item", `"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"x","annotations":[]}]`},
			{"item", `"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"`}, {"item", `"type":"function_call","id":"fc_1","call_id":"c","name":"n","arguments":"{}"`},
			{"item", `"type":"function_call_output","call_id":"c","output":"{\"file_id\":1}"`}, {"item", `"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search"}`},
			{"item", `"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,AAAA"}`},
			{"item", `"type":"program","id":"p_1","call_id":"c","code":"x","fingerprint":"f"`}, {"item", `"type":"program_output","id":"po_1","call_id":"c","result":"{\"a\": 1}","status":"completed"`},
			{"item", `"type":"program_output","id":"po_1","call_id":"c","result":"","status":"completed"`}, {"item", `"type":"apply_patch_call_output","id":"ap_1","call_id":"c","status":"completed"`},
			{"item", `"type":"mcp_list_tools","id":"ml_1","server_label":"s","tools":[]`}, {"item", `"type":"mcp_list_tools","id":"ml_1","server_label":"s","tools":[{"name":"t","input_schema":{}}]`},
			{"item", `"type":"tool_search_output","id":"ts_1","call_id":"c","execution":"client","status":"completed","tools":[]`}, {"item", `"type":"additional_tools","id":"at_1","role":"developer","tools":[]`},
			{"item", `"type":"function_call_output","id":"fo_1","call_id":"c","output":""`}, {"item", `"type":"local_shell_call_output","id":"c","output":""`},
			{"item", `"type":"shell_call_output","id":"so_1","call_id":"c","output":[]`}, {"item", `"type":"function_call","id":"fc_1","call_id":"c","name":"n","arguments":""`},
			{"item", `"type":"shell_call","id":"sc_1","call_id":"c","action":{"commands":["ls"]},"environment":{"type":"local","skills":[{"name":"s","description":"d","path":"/s"}]}`},
			{"item", `"type":"file_search_call","id":"fs_1","queries":["x"],"results":[{"text":"x"}]`},
			{"body", `"previous_response_id":null,"conversation":null`},
			{"body", `"store":true`}, {"body", `"background":false`}, {"body", `"container":null`}, {"body", `"metadata":{"file_id":"mine"}`},
			{"body", `"attachments":[],"skills":[],"thread_id":null,"documents":[]`}, {"body", `"documents":[{"id":"1","data":{"text":"x"}},{"title":"t","text":"x"}]`},
			{"body", `"user_id":"1","fileid":null,"file":"x","ids":["1"],"cached":true`},
			{"part", `"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}`}, {"part", `"type":"input_video","input_video":{"data":"AAAA"}`},
			{"body", `"extra_body":{"google":{"thinking_config":{}}}`}, {"body", `"audio":{"voice":"alloy","format":"wav"}`},
			{"tool", `"input_schema":{"file_id":1,"container":{}}`}, {"tool", `"function":{"parameters":{"properties":{"file_id":{},"url":{}}}}`},
			{"part", `"type":"tool_use","id":"1","name":"n","input":{"file_id":"mine","container":"c","source":{"type":"file"}}`},
			{"part", `"type":"image","source":{"type":"url","url":"https://example.com/a.png"}`},
			{"part", `"type":"image_url","image_url":{"url":"data:image\/png;base64,AAAA"}`},
			{"part", `"type":"search_result","source":"file:///x","title":"t","content":[{"type":"text","text":"x"}]`},
			{"part", `"type":"tool_result","content":["x",{"type":"text","text":"file_id"}]`},
		} {
			body, applies := statefulBody(rt, c.where, c.member)
			if f := new(modelcall.Request).Parse(rt.schema, []byte(body), false); applies && f != nil {
				t.Errorf("%s: %s is refused: %v", rt.name, body, f)
			}
		}
	}
}
