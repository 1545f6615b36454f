package usage

import "testing"

func TestRequestTextIsCounted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		want int64
	}{
		"prompt":       {`{"model":"m","prompt":"hello"}`, 5},
		"prompts":      {`{"prompt":["ab","cd\n"],"suffix":"x"}`, 6},
		"string":       {`{"system":"sys","messages":[{"role":"user","content":"été"}]}`, 8},
		"blocks":       {`{"messages":[{"role":"user","content":[{"type":"text","text":"four"},{"type":"image","source":{"data":"AAAA"}}]}]}`, 4},
		"tool results": {`{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"ab"}]},{"type":"tool_result","content":"cd"}]}]}`, 4},
		"tool use":     {`{"messages":[{"role":"assistant","content":[{"type":"tool_use","name":"n","input":{"a":1}}]}]}`, 5},
		"tool calls":   {`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"x","function":{"name":"f","arguments":"{}"}}]}]}`, 3},
		"functions":    {`{"messages":[],"functions":[{"name":"n"}],"response_format":{"a":1}}`, 17},
		"documents":    {`{"messages":[],"documents":[{"text":"ab"}]}`, 13},
		"a document":   {`{"messages":[{"role":"user","content":[{"type":"document","source":{"type":"content","content":[{"type":"text","text":"ab"}]}}]}]}`, 2},
		"tools":        {`{"messages":[],"tools":[{"name":"n"}]}`, int64(len(`[{"name":"n"}]`)) - 2},
		"nothing":      {`{"model":"m","metadata":{"text":"no"}}`, 0},
		"not JSON":     {`{"prompt":"abc`, 3},
		"nested":       {`{"prompt":[["a"],{"text":"b"}]}`, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := ReadRequest([]byte(c.body)).TextBytes; got != c.want {
				t.Errorf("%d bytes of text, want %d", got, c.want)
			}
		})
	}
}

func TestImageLinksOfARequestAreCounted(t *testing.T) {
	t.Parallel()
	const url = `"https://example.com/a"`
	for name, c := range map[string]struct {
		parts string
		want  int64
	}{
		"none":               {`{"type":"text","text":"https://example.com"}`, 0},
		"chat":               {`{"type":"image_url","image_url":{"url":` + url + `,"detail":"low"}}`, 1},
		"as a string":        {`{"type":"input_image","image_url":` + url + `},{"type":"image","image":` + url + `}`, 2},
		"messages":           {`{"type":"image","source":{"type":"url","url":` + url + `}}`, 1},
		"the type last":      {`{"source":{"url":` + url + `,"type":"url"},"type":"image"}`, 1},
		"escaped slashes":    {`{"type":"image_url","image_url":{"url":"http:\/\/example.com"}}`, 1},
		"upper case":         {`{"type":"image_url","image_url":{"url":"HTTPS://example.com"}}`, 1},
		"in other parts":     {`{"type":"tool_result","content":[{"type":"image","source":{"url":` + url + `}},{"type":"document","source":{"type":"content","content":[{"type":"image","source":{"url":` + url + `}}]}}]}`, 2},
		"a document":         {`{"type":"document","source":{"type":"url","url":` + url + `}}`, 0},
		"a document's image": {`{"type":"document","source":{"type":"url","url":` + url + `}},{"type":"image","source":{"type":"base64","data":"AA"}}`, 0},
		"inline":             {`{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}`, 0},
		"other schemes":      {`{"type":"image","source":{"type":"url","url":"gs://bucket/a"}},{"type":"image_url","image_url":"file:///a"}`, 0},
		"escaped":            {`{"type":"image_url","image_url":"\u0068ttps://example.com"},{"type":"im\u0061ge","source":{"url":` + url + `}},{"type":"x","im\u0061ge_url":` + url + `}`, 2},
		"other members":      {`{"type":"video_url","video_url":{"url":` + url + `}},{"type":"file","file":{"url":` + url + `},"url":` + url + `}`, 0},
		"nested links":       {`{"type":"image","source":{"url":{"url":` + url + `}}},{"type":"image","image":[` + url + `]}`, 1},
	} {
		for _, body := range []string{`{"messages":[{"role":"user","content":[` + c.parts + `]}]}`, `{"system":[` + c.parts + `],"messages":[]}`} {
			if got := ReadRequest([]byte(body)).ImageLinks; got != c.want {
				t.Errorf("%s: %d links to images, want %d", name, got, c.want)
			}
		}
	}
}
