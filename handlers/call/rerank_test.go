package call_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestARerankCallIsChargedItsSearchUnits(t *testing.T) {
	g, key := mediaCalls(t)
	documents := func(n int, text string) string { return strings.TrimSuffix(strings.Repeat(`"`+text+`",`, n), ",") }
	long := strings.Repeat("word ", 600)
	for _, c := range []struct{ model, documents, answer, cost string }{
		{"flat-few", documents(100, "a"), `{"results":[]}`, "0.25"},
		{"flat-many", documents(101, "a"), `{"results":[]}`, "0.50"},
		{"flat-reported", documents(101, "a"), `{"results":[],"meta":{"api_version":{"version":"2"},"billed_units":{"search_units":1}}}`, "0.25"},
		{"flat-long", documents(100, long), `{"results":[],"meta":{"billed_units":{"search_units":2}}}`, "0.50"},
		{"flat-none", documents(250, "a"), `{"results":[],"meta":{"billed_units":{"search_units":0}}}`, "0.75"},
		{"flat-odd", documents(2, "a"), `{"results":[],"meta":{"billed_units":{"search_units":"x"}}}`, "0.25"},
		{"flat-huge", documents(101, "a"), `{"results":[],"meta":{"billed_units":{"search_units":1e300}}}`, "0.50"},
		{"flat-refused", documents(101, "a"), `{"error":{"message":"no"}}`, "0.00"},
	} {
		g.Backend.On(c.model, gatetest.JSON(http.StatusOK, c.answer))
		for _, path := range []string{"/v1/rerank", "/v2/rerank"} {
			got := respond(t, g, path, key.Secret, `{"model":"`+c.model+`","query":"q","documents":[`+c.documents+`]}`)
			if line := g.CallLine(t, got.RequestID()); got.Status != http.StatusOK || line.Text("cost") != c.cost {
				t.Errorf("%s %s: %d, want a cost of %s: the log line is %v", path, c.model, got.Status, c.cost, line)
			}
		}
	}
	// The members of Cohere's SDK.
	for more, status := range map[string]int{`"priority":5,"max_chunks_per_doc":3,"max_tokens_per_doc":100,"rank_fields":["text"]`: http.StatusOK, `"priority":0`: http.StatusOK, `"priority":-1`: http.StatusBadRequest} {
		if got := respond(t, g, "/v1/rerank", key.Secret, `{"model":"flat-few","query":"q","documents":["a"],`+more+`}`); got.Status != status {
			t.Errorf("%s: answered %d %s, want %d", more, got.Status, got.Body, status)
		}
	}
	poor := g.NewKey(t, nil)
	g.Credit(t, poor.UserID, "0.49")
	// More chunks of a document are no more than are reserved for its text.
	if got := respond(t, g, "/v1/rerank", poor.Secret, `{"model":"flat","query":"q","max_chunks_per_doc":1000,"documents":[`+documents(100, long)+`]}`); got.Status != http.StatusPaymentRequired {
		t.Errorf("answered %d %s, want 402", got.Status, got.Body)
	}
	for text, status := range map[string]int{documents(101, "a"): http.StatusPaymentRequired, documents(100, long): http.StatusPaymentRequired, documents(99, "a"): http.StatusOK} {
		if got := respond(t, g, "/v2/rerank", poor.Secret, `{"model":"flat","query":"q","documents":[`+text+`]}`); got.Status != status {
			t.Errorf("%.20s: %d %s, want %d", text, got.Status, got.Body, status)
		}
	}
	g.Verify(t)
}
