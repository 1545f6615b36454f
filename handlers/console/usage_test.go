package console_test

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// spender is a user with two keys whose calls have been charged, refused and failed.
type spender struct {
	account
	keys [2]gatetest.Key
	ids  []string // of the calls, in the order in which they were made
}

// newSpender makes five calls that are charged, and then one that a backend refuses.
func newSpender(t *testing.T, g *gatetest.Gate, a account) spender {
	t.Helper()
	s := spender{account: a}
	g.Credit(t, a.name, "10.00")
	for i := range s.keys {
		g.MustAdmin(t, http.MethodPost, "/modelgate/keys", map[string]any{"user": a.name, "name": "<b>שלום</b> & 😀"}, &s.keys[i])
	}
	answer := gatetest.JSON(200, `{"choices":[{"text":"four","finish_reason":"stop"}],"usage":{"prompt_tokens":1007,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":1000}}}`)
	for _, model := range []string{"priced", "dear"} {
		g.Backend.On(model, answer)
	}
	g.Backend.On(strangeModel, gatetest.JSON(404, `{"error":{"message":"there is no such model"}}`))
	for _, c := range []struct {
		key    int
		model  string
		status int
	}{{0, "priced", 200}, {0, "dear", 200}, {1, "priced", 200}, {0, "priced", 200}, {1, "dear", 200}, {0, strangeModel, 404}} {
		got := g.Do(t, "POST", "/v1/completions", "X-Api-Key: "+s.keys[c.key].Secret, fmt.Sprintf(`{"model":%q,"prompt":"hello"}`, c.model))
		if got.Status != c.status {
			t.Fatalf("%s is answered %d %s", c.model, got.Status, got.Body)
		}
		s.ids = append(s.ids, got.RequestID())
	}
	g.WalletAtRest(t, a.name)
	return s
}

// strangeModel is the name of a model that a user made up.
const strangeModel = `=<script>alert("שלום😀")</script>`

const pricedApp = app + `price dear {
	input 3.00
	output 15.00
	cache_read 0.30
	context 20000
	max_output 1000
	request 0.10
}
price * {
	request 1.00
}
`

type detail struct {
	called
	Breakdown *struct {
		Parts []struct {
			Tokens []struct{ Kind, Price, Cost string }
		}
		Rounded, Request, Total string
	}
	Paid []struct {
		Account  string
		Amount   string
		Transfer string `json:"transfer_id"`
	}
}

func TestACallOfTheUserIsExplained(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: pricedApp, Site: site})
	s, other := newSpender(t, g, newAccount(t, g)), newAccount(t, g)
	answer, e := s.ask(t, http.MethodGet, "/api/log/self/"+s.ids[1], "")
	own := data[detail](t, answer, e)
	var whole detail
	g.MustAdmin(t, http.MethodGet, "/modelgate/calls/"+s.ids[1], nil, &whole)
	if fmt.Sprintf("%+v", own.Breakdown) != fmt.Sprintf("%+v", whole.Breakdown) || fmt.Sprintf("%+v", own.Paid) != fmt.Sprintf("%+v", whole.Paid) {
		t.Errorf("the user sees %+v, the operator %+v", own, whole)
	}
	if own.Cost.String() != "0.100351" || own.Breakdown.Rounded != "0.000351" || own.Breakdown.Request != "0.10" || own.Breakdown.Total != "0.100351" ||
		len(own.Breakdown.Parts) != 1 || len(own.Breakdown.Parts[0].Tokens) != 3 || len(own.Paid) != 1 || own.Paid[0].Account != "wallet" || own.Paid[0].Amount != "0.100351" {
		t.Errorf("the call is %+v", own)
	}
	for _, secret := range []string{"backend", "uncollected", "127.0.0.1", "user"} {
		if strings.Contains(string(e.Data), secret) {
			t.Errorf("the answer has %q: %s", secret, e.Data)
		}
	}
	if free := get[detail](t, s.account, "/api/log/self/"+s.ids[5]); free.Ended != "refused" || free.Breakdown != nil || free.Paid == nil || len(free.Paid) != 0 {
		t.Errorf("the refused call is %+v", free)
	}
	answer, _ = other.ask(t, http.MethodGet, "/api/log/self/"+s.ids[1], "")
	refused(t, "the call of another user", answer, 404, "NOT_FOUND")
	answer, _ = s.ask(t, http.MethodGet, "/api/log/self/req_none", "")
	refused(t, "a call that does not exist", answer, 404, "NOT_FOUND")
}

func TestUsageOfADayAndModelAndOfAFilter(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: pricedApp, Site: site})
	s := newSpender(t, g, newAccount(t, g))
	today := g.Now().UTC().Format(time.DateOnly)
	for query, want := range map[string]string{
		"":                                      "priced 3 0.75, dear 2 0.200702,  1 0.00",
		"&model=dear":                           "dear 2 0.200702",
		"&key_id=" + s.keys[0].ID:               "priced 2 0.50, dear 1 0.100351,  1 0.00",
		"&model=dear&key_id=" + s.keys[1].ID:    "dear 1 0.100351",
		"&start=" + today + "&end=" + today:     "priced 3 0.75, dear 2 0.200702,  1 0.00",
		"&start=2026-01-01&end=2026-01-01":      "",
		"&start=" + today + "&key_id=key_other": "",
	} {
		report := get[report](t, s.account, "/api/data/self?group=day_model"+query)
		var rows []string
		for _, u := range report.Items {
			rows = append(rows, fmt.Sprintf("%s %d %v", u.Model, u.Calls, u.Cost))
			if u.Day != today || u.KeyID != "" {
				t.Errorf("%s: %+v", query, u)
			}
		}
		if got := strings.Join(rows, ", "); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	if day := get[report](t, s.account, "/api/data/self?start=2026-01-01&end=2026-01-03"); day.End-day.Start != 3*86400 {
		t.Errorf("three days are from %d to %d", day.Start, day.End)
	}
	for query, want := range map[string]int{"start=" + today: 6, "end=" + today: 6, "start=" + today + "&end=" + today + "&model=dear": 2, "end=2026-01-01": 0} {
		if calls := get[page[called]](t, s.account, "/api/log/self?"+query); calls.Total != want {
			t.Errorf("%s: %d calls, want %d", query, calls.Total, want)
		}
	}
	for _, query := range []string{"start=2026-02-30", "start=2026-1-1", "end=1969-12-31", "start=2026-01-02&end=2026-01-01", "format=xml"} {
		answer, _ := s.ask(t, http.MethodGet, "/api/log/self?"+query, "")
		refused(t, query, answer, 400, "INVALID_PARAMETER")
	}
}

func TestCallsAsCSV(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: pricedApp, Site: site})
	s := newSpender(t, g, newAccount(t, g))
	answer := g.Do(t, "GET", "/api/log/self?format=csv&key_id="+s.keys[0].ID, s.auth, "")
	if answer.Header.Get("Content-Type") != "text/csv; charset=utf-8" || answer.Header.Get("Content-Disposition") != `attachment; filename="calls.csv"` {
		t.Errorf("headers %v", answer.Header)
	}
	rows, err := csv.NewReader(strings.NewReader(answer.Body)).ReadAll()
	if err != nil || len(rows) != 5 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	if got := strings.Join(rows[0], " "); got != "time request_id key_id model route stream status ended usage rule "+
		"input_tokens output_tokens cache_read_tokens cache_write_5m_tokens cache_write_1h_tokens reasoning_tokens "+
		"audio_input_tokens audio_output_tokens image_input_tokens image_output_tokens cost first_byte_ms duration_ms" {
		t.Errorf("the columns are %s", got)
	}
	for i, c := range get[page[called]](t, s.account, "/api/log/self?key_id="+s.keys[0].ID).Items {
		row := rows[i+1]
		at, err := time.Parse(time.RFC3339, row[0])
		if err != nil || at.Unix() != c.Time || row[1] != c.RequestID || row[2] != s.keys[0].ID || strings.TrimPrefix(row[3], "'") != c.Model || row[6] != fmt.Sprint(c.Status) || row[7] != c.Ended ||
			row[10] != fmt.Sprint(c.Tokens["input"]) || row[12] != fmt.Sprint(c.Tokens["cache_read"]) || row[20] != c.Cost.String() {
			t.Errorf("row %q of call %+v", row, c)
		}
	}
	if strings.Contains(answer.Body, ",=") || !strings.Contains(answer.Body, "'=<script>") {
		t.Errorf("a spreadsheet takes a cell for a formula: %s", answer.Body)
	}
}
